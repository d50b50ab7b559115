// Package browser tests the admin pages in a real Chromium against the built binary: what an operator does, how pages
// stay up to date, and the rules of layout, contrast and keyboard that every page keeps.
package browser

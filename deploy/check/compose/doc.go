// Package compose checks deploy/compose with the library of Docker Compose. No engine is used: the images are
// neither pulled nor started.
package compose

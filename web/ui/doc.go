// Package ui is the HTML face of the dispatcher: the pages by which people see what is stuck, why, since when, and mend it.
//
// A page is a handler that fills a typed struct, and a template of the same name; a page is rendered into a buffer before its first byte is
// written, so that an error never leaves half a page. Every text stands in a catalogue (texts/), in English and Chinese. An act is a form
// with a page of its own that says what will happen; scripts only show it in a dialog, and nothing needs scripts. A page that is open is
// kept up to date by rendering it again on the server, once for all who look at the same (live.go).
//
// It guarantees that nothing of what senders, receivers and operators write is taken for markup; that every page and act asks for a
// session whose key is valid at that moment and has the scope that the table of routes names; that a request from another site changes
// nothing; and that what leaves allows no inline script or style. It decides nothing about callbacks, knows no SQL and no index, and
// answers no JSON.
package ui

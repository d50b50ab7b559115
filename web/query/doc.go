// Package query has what both faces of the server share about a request: how fast keys may be guessed, how
// many requests a key may make, and whether browsers come over https.
//
// It guarantees that every limit takes and counts in one step, so that parallel requests cannot pass
// together, and that its memory is bounded however many addresses and keys come. It knows no HTTP, and looks
// up no key by itself. Each process counts for itself.
package query

// Package query has what the two faces of the server share about a request: who makes it, which callbacks and
// which span of time its parameters name, where in a list it continues, and what is masked in its answer. It
// also bounds how fast keys may be guessed and how many requests a key may make. Engine and Store are what
// both faces ask of the engine and of the database; each face adds what it alone asks.
//
// Everything that is read is checked, with an error for each parameter, so that no text of a caller's making
// reaches SQL unseen. A filter that is read can be written as an address or as JSON and read again as the
// same filter. Every limit takes and counts in one step, so that parallel requests cannot pass together, and
// its memory is bounded however many addresses and keys come. Each process counts for itself. The package
// knows no HTTP, and authenticates no key.
package query

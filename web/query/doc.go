// Package query has the parts of a request that the API and the UI share: the caller, the callbacks and the
// time range that the parameters select, the position in a list, and the masking of responses. It also limits
// how fast keys can be guessed, and how many requests a key can make. Engine and Store are the methods that
// both call; each of the two adds its own.
//
// The package validates everything that it reads, and reports an error for each parameter. So a text that a
// caller invents never reaches SQL unchecked. A filter can be written as a URL or as JSON, and read again as
// the same filter. Every limit checks and counts in one step, so parallel requests cannot pass together. Its
// memory is limited, however many addresses and keys there are. Each process counts separately.
//
// The package does not know HTTP routes, and does not authenticate keys.
package query

// Package api is the JSON face of the dispatcher, version 1: routes, decoding, rendering, and the OpenAPI
// document that describes them.
//
// It guarantees that a request is understood as it is written or refused: unknown fields, keys that stand
// twice, texts with control characters and values of the wrong type are 422 with the field's name; that a
// payload's bytes reach the engine as they stood in the request; that nothing is read beyond the limits; and
// that every error is a problem of package httperr. Every request that reaches the engine or the store is of
// the project that its key belongs to, and of a scope that the table of routes says the call needs.
//
// It does not judge values (the engine does), knows no SQL and no index, and serves no HTML.
package api

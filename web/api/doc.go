// Package api is the JSON API of the dispatcher, version 1: routes, decoding, rendering, and the OpenAPI
// document that describes them.
//
// Guarantees:
//
//   - A request is understood exactly as it is written, or rejected. Unknown fields, duplicate keys, texts
//     with control characters and values of the wrong type get a 422 that names the field.
//   - The bytes of a payload reach the engine exactly as they are in the request.
//   - Nothing is read beyond the limits.
//   - Every error is a problem of package httperr.
//   - Every call to the engine or the store is for the project of the request's key. The key has the scope
//     that the table of routes names.
//
// The package does not check what values mean; the engine does. It knows neither SQL nor the index, and
// serves no HTML.
package api

// Package client is the Go client of a dispatcher: it sends callbacks, reads what became of them, and
// verifies the webhooks that a dispatcher sends. It also has the request and response types of API v1. It
// needs only the standard library.
//
//	c, err := client.New(client.Options{URL: "https://dispatcher.example", Key: key})
//	cb, err := c.Send(ctx, client.CallbackRequest{
//		URL: "https://shop.example/notify", Topic: "payment.succeeded", Ref: "order-1",
//		Payload: json.RawMessage(`{"paid":10000}`), IdempotencyKey: "order-1/paid",
//	})
//
// # Calls
//
// The client has one method per operation of the API, and one file per resource. Each takes a context and
// returns a typed value. Lists and feeds are iterators:
//
//	for cb, err := range c.Callbacks(client.Filter{State: []client.State{client.Dead}}).All(ctx) { … }
//
// Every try of a call has a timeout (Options.Timeout, 45 seconds). The size of a response is limited
// (Options.MaxAnswer, 64 MiB). No redirect is followed, because it could take the key to another host.
//
// # What is sent again
//
// Options.Retries says how often (4 times if it is zero, never if it is negative). A call is sent again after
// a connection error, a timeout, and the statuses 429, 500, 502, 503 and 504. The waits are about 0.5, 1, 2
// and 4 seconds, and at least as long as Retry-After. A Retry-After of more than 30 seconds, and the end of
// the context, end the call.
//
//   - Every GET request is sent again.
//   - Send, SendBatch, SendEvent and CreatePoll are sent again with the same IdempotencyKey, so that the
//     server accepts them once. A request without a key gets a random one, which lasts for that call only.
//     Relay is sent again with the same rows, whose ids are their keys.
//   - All other calls are sent once, also those of Call.
//
// A call of the second kind may end although the server may have accepted it: it then returns a
// *NoAnswerError, which has the idempotency key of the request, also a random one. Send the same request
// again with this key: the server returns the first callback, with Replayed true, or accepts the request now.
// To do so after a restart too, set IdempotencyKey to something that the payment already has, such as the
// order number and the event.
//
// # Errors
//
// An error response of the server is an *Error, with a code, the invalid fields, and the wait that the server
// asks for. A code is also a target of errors.Is:
//
//	if errors.Is(err, client.CodeNotFound) { … }
//	if e, ok := errors.AsType[*client.Error](err); ok { log.Println(e.Status, e.Code, e.Errors) }
//
// A *NoAnswerError means that no complete response arrived. Ambiguous reports whether the request may have
// had an effect.
//
// # Traces, and TLS
//
// WithHeader adds a header to the requests of a context. With traceparent, the attempts of a callback
// continue the trace of the caller. An instrumented transport in Options.HTTPClient does that for every
// request. The same client has your TLS settings, such as a CA of your company.
//
// # Receiving
//
// A Verifier checks the signatures of received webhooks (Standard Webhooks, v1 and v1a). Its Middleware
// passes on only requests with a valid signature.
//
// # Types
//
// The server reads and writes the same types. In a response, the zero value of a field with the tag
// api:"null" is null in JSON. In a request, a field that is left out or null is not given. Where null has its
// own meaning, the field is an Optional. The tags named schema are the constraints in the OpenAPI document.
package client

package store

// A State is the state of a callback.
//
//	scheduled → attempting → succeeded | dead | canceled, or back to scheduled
//
// Attempting is not stored. A scheduled callback with a live claim is attempting (see [Callback.StateAt]). So
// a process that crashes leaves no state to undo.
type State string

// The states of a callback.
const (
	Scheduled  State = "scheduled"
	Attempting State = "attempting"
	Succeeded  State = "succeeded"
	Dead       State = "dead"
	Canceled   State = "canceled"
)

// States lists every state, in the order of a callback's life.
var States = [...]State{Scheduled, Attempting, Succeeded, Dead, Canceled}

// Terminal reports whether the state is final. Only a retry or another request can open the callback again.
func (s State) Terminal() bool { return s == Succeeded || s == Dead || s == Canceled }

// A Reason is the cause of a terminal state. It is empty for an open callback, and for a notify callback that
// succeeded.
type Reason string

// The reasons of terminal callbacks.
const (
	// Of dead callbacks.
	Exhausted  Reason = "exhausted"  // no tier is left, or the deadline has passed
	Rejected   Reason = "rejected"   // the response, or its status by Policy.StopOn, is a final refusal
	Gone       Reason = "gone"       // the receiver answered 410, which is in Policy.StopOn
	Expired    Reason = "expired"    // ExpiresAt has passed
	Blocked    Reason = "blocked"    // the egress guard refused the URL repeatedly
	Invalid    Reason = "invalid"    // the request cannot be built or decoded
	Poison     Reason = "poison"     // too many claims in a row had no result
	Unresolved Reason = "unresolved" // a poll ended without a final answer

	// Of canceled callbacks.
	Requested       Reason = "requested"        // a caller canceled it
	Superseded      Reason = "superseded"       // a callback with a higher version was accepted
	EndpointDeleted Reason = "endpoint_deleted" // its endpoint was deleted

	// Of succeeded polls.
	PollSucceeded   Reason = "success"  // the upstream's final answer is a success
	PollFailed      Reason = "failure"  // the upstream's final answer is a failure
	ResolvedOutside Reason = "resolved" // a caller ended the poll with a resolve
)

// Reasons lists every reason.
var Reasons = [...]Reason{
	Exhausted, Rejected, Gone, Expired, Blocked, Invalid, Poison, Unresolved, Requested, Superseded,
	EndpointDeleted,
	PollSucceeded, PollFailed, ResolvedOutside,
}

// A Kind is the kind of a callback.
type Kind string

// The kinds of callback.
const (
	Notify Kind = "notify" // delivers a payload
	Poll   Kind = "poll"   // reads a status from the upstream until it is final
)

// A Class is the error type of an attempt, or ClassOK. The API and the metrics use exactly these values.
type Class string

// The classes of attempts.
const (
	ClassOK              Class = "ok"                // the success rule is met
	ClassRuleMismatch    Class = "rule_mismatch"     // a 2xx response does not meet the success rule
	ClassRejected        Class = "rejected"          // by the success rule, the response is a final refusal
	ClassReceiverBusy    Class = "receiver_busy"     // the receiver is busy with the same business key
	ClassRedirect        Class = "redirect"          // 3xx; redirects are not followed
	ClassHTTP4xx         Class = "http_4xx"          // a 4xx without its own class
	ClassHTTP413         Class = "http_413"          // 413, the payload is too large
	ClassGone            Class = "gone"              // 410
	ClassThrottled       Class = "throttled"         // 429
	ClassHTTP5xx         Class = "http_5xx"          // any 5xx
	ClassProtocol        Class = "protocol"          // the response is not valid HTTP
	ClassDNSNotFound     Class = "dns_not_found"     // the host does not exist
	ClassDNSError        Class = "dns_error"         // the lookup failed or timed out
	ClassConnectRefused  Class = "connect_refused"   // the connection was refused
	ClassConnectTimeout  Class = "connect_timeout"   // connecting or the TLS handshake timed out
	ClassUnreachable     Class = "unreachable"       // the host cannot be reached
	ClassTLSCert         Class = "tls_cert"          // the server's certificate is not valid
	ClassTLSProto        Class = "tls_proto"         // the TLS handshake failed
	ClassTLSClientCert   Class = "tls_client_cert"   // the server requires a client certificate
	ClassConnReset       Class = "conn_reset"        // the connection was closed too early
	ClassTimeoutHeaders  Class = "timeout_headers"   // no response within the timeout
	ClassTimeoutBody     Class = "timeout_body"      // the response body did not end within the timeout
	ClassHeadersTooLarge Class = "headers_too_large" // the response headers are too large
	ClassDecode          Class = "decode"            // the response body cannot be decoded
	ClassBlocked         Class = "blocked"           // the egress guard refused the address
	ClassInvalidRequest  Class = "invalid_request"   // the request cannot be built
	ClassCorrupt         Class = "corrupt"           // stored data of the callback cannot be decoded
	ClassSignError       Class = "sign_error"        // the request cannot be signed
	ClassPanic           Class = "panic"             // the attempt panicked
	ClassInterrupted     Class = "interrupted"       // the shutdown of the process ended the attempt
	ClassCrashed         Class = "crashed"           // the claim of the attempt ran out without a result
	ClassLocalInfra      Class = "local_infra"       // this machine or its network failed
)

// Classes lists every class. Metrics use it to export all series from the start, and filters to check input.
var Classes = [...]Class{
	ClassOK, ClassRuleMismatch, ClassRejected, ClassReceiverBusy, ClassRedirect, ClassHTTP4xx, ClassHTTP413,
	ClassGone,
	ClassThrottled, ClassHTTP5xx, ClassProtocol, ClassDNSNotFound, ClassDNSError, ClassConnectRefused,
	ClassConnectTimeout, ClassUnreachable, ClassTLSCert, ClassTLSProto, ClassTLSClientCert, ClassConnReset,
	ClassTimeoutHeaders, ClassTimeoutBody, ClassHeadersTooLarge, ClassDecode, ClassBlocked,
	ClassInvalidRequest,
	ClassCorrupt, ClassSignError, ClassPanic, ClassInterrupted, ClassCrashed, ClassLocalInfra,
}

package store

// A State says where a callback is in its life.
//
//	scheduled → attempting → succeeded | dead | canceled, or back to scheduled
//
// Attempting is not stored: it is a scheduled callback whose claim is alive (see [Callback.StateAt]), so that
// a process that dies leaves nothing behind that must be undone.
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

// Terminal says whether no attempt follows unless somebody asks for one.
func (s State) Terminal() bool { return s == Succeeded || s == Dead || s == Canceled }

// A Reason says why a callback is in its terminal state. It is empty while the callback is open, and for a
// notify callback that succeeded.
type Reason string

// The reasons of dead and of canceled callbacks.
const (
	Exhausted  Reason = "exhausted"
	Rejected   Reason = "rejected"
	Gone       Reason = "gone"
	Expired    Reason = "expired"
	Blocked    Reason = "blocked"
	Invalid    Reason = "invalid"
	Poison     Reason = "poison"
	Unresolved Reason = "unresolved"

	Requested       Reason = "requested"
	Superseded      Reason = "superseded"
	EndpointDeleted Reason = "endpoint_deleted"

	// Those of polls that succeeded: the upstream's final answer is a success, or a failure, or it was ended
	// from outside.
	PollSucceeded   Reason = "success"
	PollFailed      Reason = "failure"
	ResolvedOutside Reason = "resolved"
)

// Reasons lists every reason.
var Reasons = [...]Reason{
	Exhausted, Rejected, Gone, Expired, Blocked, Invalid, Poison, Unresolved, Requested, Superseded,
	EndpointDeleted,
	PollSucceeded, PollFailed, ResolvedOutside,
}

// A Kind says what a callback is for.
type Kind string

// The kinds of callback.
const (
	Notify Kind = "notify"
	Poll   Kind = "poll"
)

// A Class says how an attempt ended. The set is closed; the API and the metrics name exactly these.
type Class string

// The classes of attempts.
const (
	ClassOK              Class = "ok"
	ClassRuleMismatch    Class = "rule_mismatch"
	ClassRejected        Class = "rejected"
	ClassReceiverBusy    Class = "receiver_busy"
	ClassRedirect        Class = "redirect"
	ClassHTTP4xx         Class = "http_4xx"
	ClassHTTP413         Class = "http_413"
	ClassGone            Class = "gone"
	ClassThrottled       Class = "throttled"
	ClassHTTP5xx         Class = "http_5xx"
	ClassProtocol        Class = "protocol"
	ClassDNSNotFound     Class = "dns_not_found"
	ClassDNSError        Class = "dns_error"
	ClassConnectRefused  Class = "connect_refused"
	ClassConnectTimeout  Class = "connect_timeout"
	ClassUnreachable     Class = "unreachable"
	ClassTLSCert         Class = "tls_cert"
	ClassTLSProto        Class = "tls_proto"
	ClassTLSClientCert   Class = "tls_client_cert"
	ClassConnReset       Class = "conn_reset"
	ClassTimeoutHeaders  Class = "timeout_headers"
	ClassTimeoutBody     Class = "timeout_body"
	ClassHeadersTooLarge Class = "headers_too_large"
	ClassDecode          Class = "decode"
	ClassBlocked         Class = "blocked"
	ClassInvalidRequest  Class = "invalid_request"
	ClassCorrupt         Class = "corrupt"
	ClassSignError       Class = "sign_error"
	ClassPanic           Class = "panic"
	ClassInterrupted     Class = "interrupted"
	ClassCrashed         Class = "crashed"
	ClassLocalInfra      Class = "local_infra"
)

// Classes lists every class, for metrics that must exist before their first count and for filters.
var Classes = [...]Class{
	ClassOK, ClassRuleMismatch, ClassRejected, ClassReceiverBusy, ClassRedirect, ClassHTTP4xx, ClassHTTP413,
	ClassGone,
	ClassThrottled, ClassHTTP5xx, ClassProtocol, ClassDNSNotFound, ClassDNSError, ClassConnectRefused,
	ClassConnectTimeout, ClassUnreachable, ClassTLSCert, ClassTLSProto, ClassTLSClientCert, ClassConnReset,
	ClassTimeoutHeaders, ClassTimeoutBody, ClassHeadersTooLarge, ClassDecode, ClassBlocked,
	ClassInvalidRequest,
	ClassCorrupt, ClassSignError, ClassPanic, ClassInterrupted, ClassCrashed, ClassLocalInfra,
}

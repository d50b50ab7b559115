package client

import (
	"context"
	"time"
)

// A Class is what an attempt has come to.
type Class string

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

// An Attempt is one try to send a callback.
type Attempt struct {
	Number     int       `json:"number"`
	Trigger    string    `json:"trigger" schema:"enum: [schedule, manual]"`
	Outcome    string    `json:"outcome" schema:"enum: [succeeded, failed, unknown]"`
	Charged    bool      `json:"charged"`
	Class      Class     `json:"class" api:"null" schema:"type: string"`
	StatusCode int       `json:"status_code" api:"null"`
	Error      string    `json:"error" api:"null"`
	StartedAt  time.Time `json:"started_at" api:"null"`
	EndedAt    time.Time `json:"ended_at" api:"null"`
	DueAt      time.Time `json:"due_at" api:"null"`
	// How long after it was due it began, in milliseconds.
	LatenessMs      float64     `json:"lateness_ms"`
	TimingsMs       Timings     `json:"timings_ms"`
	RequestHeaders  Headers     `json:"request_headers"`
	ResponseHeaders Headers     `json:"response_headers"`
	ResponseBody    string      `json:"response_body"`
	ResponseTrunc   bool        `json:"response_truncated"`
	Rule            *RuleResult `json:"rule" api:"null"`
	NextDueAt       time.Time   `json:"next_due_at" api:"null"`
	// Only where it is true: the attempt ended after its callback had, or after its claim was lost, and
	// had no effect.
	Stale bool `json:"stale,omitempty"`
}

// Timings are how long the parts of an attempt took, in milliseconds; zero: it had no such part.
type Timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// A RuleResult is what a success rule expected and what it saw.
type RuleResult struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Saw      string `json:"saw"`
}

// Attempts lists the attempts of a callback, newest first.
func (c *Client) Attempts(id string) List[Attempt] {
	return list[Attempt](c, nil, "callbacks", id, "attempts")
}

// An Explanation says why a callback has not been sent yet.
type Explanation struct {
	// One sentence.
	Summary string `json:"summary"`
	// When it is attempted at the earliest; null: that is not known, or never.
	NextAt   time.Time `json:"next_at" api:"null"`
	Blocking []Block   `json:"blocking"`
}

// A BlockCode is what keeps a callback, or a lane, from being sent.
type BlockCode string

const (
	BlockAttempting       BlockCode = "attempting"
	BlockSQLDown          BlockCode = "sql_down"
	BlockNoWorker         BlockCode = "no_worker"
	BlockSendingHeld      BlockCode = "sending_held"
	BlockIndexUnanswered  BlockCode = "index_unanswered"
	BlockIndexRebuilding  BlockCode = "index_rebuilding"
	BlockProjectPaused    BlockCode = "project_paused"
	BlockEndpointPaused   BlockCode = "endpoint_paused"
	BlockLanePaused       BlockCode = "lane_paused"
	BlockEndpointDisabled BlockCode = "endpoint_disabled"
	BlockEndpointDeleted  BlockCode = "endpoint_deleted"
	BlockNotDue           BlockCode = "not_due"
	BlockOrder            BlockCode = "order"
	BlockBreakerOpen      BlockCode = "breaker_open"
	BlockRetryAfter       BlockCode = "retry_after"
	BlockRateLimited      BlockCode = "rate_limited"
	BlockConcurrency      BlockCode = "concurrency"
	BlockLockHeld         BlockCode = "lock_held"
	BlockIndexMissing     BlockCode = "index_missing"
)

// A Block is one thing that keeps a callback, or a lane, from being sent. What is to be cured first comes
// first:
// SQL that does not commit (sql_down), no process with the role worker (no_worker), all of them started
// with --hold (sending_held), an index that does not answer (index_unanswered) or is being filled
// (index_rebuilding); then what people have paused, disabled or deleted; then what goes by itself.
type Block struct {
	Code BlockCode `json:"code"`
	// attempting: since it was claimed. sql_down, index_unanswered: since the first failure in the
	// process that answers. no_worker: since the last worker was seen; if there never was one, since the
	// callback was accepted. sending_held: since the last worker process was started. index_rebuilding:
	// since the rebuild began, or the index was found lost. project_paused, endpoint_paused,
	// lane_paused: since it was paused, however often the end was moved since. endpoint_disabled,
	// endpoint_deleted: since that was done. not_due: since the last attempt ended; if there was none,
	// since it was accepted. order: since it was accepted. breaker_open: since the breaker opened.
	// retry_after: since the lane is held without a gap. rate_limited, concurrency: since the callback
	// is due; of a lane, since its oldest open one is. lock_held: since the callback with the lock was
	// claimed. index_missing: since it is due or was last changed, whichever was later. null: not known.
	Since time.Time `json:"since" api:"null"`
	// null: not known, or until somebody ends it.
	Until  time.Time `json:"until" api:"null"`
	Detail string    `json:"detail"`
	Cure   string    `json:"cure" api:"null"`
}

// Explain says why a callback has not been sent yet.
func (c *Client) Explain(ctx context.Context, id string) (Explanation, error) {
	return read[Explanation](ctx, c, nil, "callbacks", id, "explain")
}

// Evidence returns what the records say of a callback, as text for the dispute "you never told us".
func (c *Client) Evidence(ctx context.Context, id string) (string, error) {
	a, err := c.Call(ctx, "GET", pathOf("callbacks", id, "evidence"), nil, nil)
	return string(a.Body), err
}

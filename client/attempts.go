package client

import (
	"context"
	"net/url"
	"time"
)

// A Class is the result of one attempt: ok, or an error type.
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
	// Time from due_at to the start, in milliseconds.
	LatenessMs      float64     `json:"lateness_ms"`
	TimingsMs       Timings     `json:"timings_ms"`
	RequestHeaders  Headers     `json:"request_headers"`
	ResponseHeaders Headers     `json:"response_headers"`
	ResponseBody    string      `json:"response_body"`
	ResponseTrunc   bool        `json:"response_truncated"`
	Rule            *RuleResult `json:"rule" api:"null"`
	NextDueAt       time.Time   `json:"next_due_at" api:"null"`
	// Present only if true. The attempt ended after its callback had finished, or after its claim was lost,
	// so it had no effect.
	Stale bool `json:"stale,omitempty"`
	// Present only if the callback was postponed between the attempt before and this one: how often.
	Diverts int `json:"diverts,omitempty"`
	// Why it was postponed the last time: `lock_conflict`, `out_of_turn`, `not_stamped`, `lock_lost`,
	// `claim_old`, `lane_stopped`, `endpoint_unread`, or a class.
	DivertReason string `json:"divert_reason,omitempty"`
}

// Timings are the durations of the parts of an attempt in milliseconds. Zero: the attempt had no such part.
type Timings struct {
	DNS       float64 `json:"dns"`
	Connect   float64 `json:"connect"`
	TLS       float64 `json:"tls"`
	FirstByte float64 `json:"first_byte"`
	Total     float64 `json:"total"`
}

// A RuleResult is what a success rule expected and what the response was.
type RuleResult struct {
	Name     string `json:"name"`
	Expected string `json:"expected"`
	Saw      string `json:"saw"`
}

// Attempts lists the attempts of a callback, newest first.
func (c *Client) Attempts(id string) List[Attempt] {
	return list[Attempt](c, nil, "callbacks", id, "attempts")
}

// An Explanation says why a callback is not sent yet.
type Explanation struct {
	// One sentence.
	Summary string `json:"summary"`
	// Earliest time of the next attempt. Null: unknown, or never.
	NextAt   time.Time `json:"next_at" api:"null"`
	Blocking []Block   `json:"blocking"`
}

// A BlockCode is a cause that keeps a callback or a lane from being sent.
type BlockCode string

const (
	BlockAttempting       BlockCode = "attempting"
	BlockSQLDown          BlockCode = "sql_down"
	BlockSendingStopped   BlockCode = "sending_stopped"
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

// A Block is one cause that keeps a callback or a lane from being sent. Blocks are sorted: the cause to fix
// first comes first. First come those that stop everything. SQL cannot commit (sql_down); all sending is
// stopped (sending_stopped); no process has the role worker (no_worker), or all of them run with --hold
// (sending_held). The index does not respond (index_unanswered) or is being rebuilt (index_rebuilding). Then
// come pauses, disabled endpoints and deleted endpoints. Causes that end without an action come last.
type Block struct {
	Code BlockCode `json:"code"`
	// Start of the block. attempting: the claim. sql_down, index_unanswered: the first failure in the process
	// that responds. sending_stopped: the stop; a new end does not change it. no_worker: the last heartbeat
	// of a worker; if there never was a worker, the accept. sending_held: the start of the last worker
	// process. index_rebuilding: the start of the rebuild, or the time at which the index was found lost.
	// project_paused, endpoint_paused, lane_paused: the first pause; a new end does not change it.
	// endpoint_disabled, endpoint_deleted: the time of that change. not_due: the end of the last attempt;
	// without one, the accept. order: the accept. breaker_open: the time at which the breaker opened.
	// retry_after: the start of the current uninterrupted hold of the lane. rate_limited, concurrency: the
	// due time of the callback; for a lane, the due time of its oldest open callback. lock_held: the claim of
	// the callback that has the lock. index_missing: the due time or the last change, whichever is later.
	// Null: unknown.
	Since time.Time `json:"since" api:"null"`
	// End of the block. Null: unknown, or until someone ends it.
	Until  time.Time `json:"until" api:"null"`
	Detail string    `json:"detail"`
	Cure   string    `json:"cure" api:"null"`
}

// Explain says why a callback is not sent yet.
func (c *Client) Explain(ctx context.Context, id string) (Explanation, error) {
	return read[Explanation](ctx, c, nil, "callbacks", id, "explain")
}

// Evidence returns the delivery report of a callback as English text. It answers the dispute "we never
// received it".
func (c *Client) Evidence(ctx context.Context, id string) (string, error) {
	return c.EvidenceIn(ctx, id, "")
}

// EvidenceIn is Evidence in a language, en or zh-CN. Without one it is in English.
func (c *Client) EvidenceIn(ctx context.Context, id, lang string) (string, error) {
	q := url.Values{}
	if lang != "" {
		q.Set("lang", lang)
	}
	a, err := c.get(ctx, 0, q, "callbacks", id, "evidence")
	return string(a.Body), err
}

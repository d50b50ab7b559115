package client

import (
	"context"
	"encoding/json"
	"time"
)

// A Policy says when a failed callback is attempted again.
type Policy struct {
	// Tier i is the wait after failed attempt i, 0s to 400d. An empty list means a single attempt.
	Tiers      []Duration `json:"tiers" api:"required" schema:"maxItems: 100"`
	RepeatLast bool       `json:"repeat_last,omitempty" schema:"default: false"`
	// Counted from the first due time. After it the callback ends as exhausted.
	Deadline Duration `json:"deadline,omitempty"`
	// Timeout of an attempt, 100ms to 60s.
	Timeout Duration `json:"timeout,omitempty" schema:"default: 15s"`
	// Each wait becomes longer by a random share of it, at most this one.
	Jitter        float64  `json:"jitter,omitempty" schema:"minimum: 0, maximum: 1, default: 0"`
	RetryAfterCap Duration `json:"retry_after_cap,omitempty" schema:"default: 1h"`
	// Minimum wait after a 429 or a timeout.
	OverloadFloor Duration `json:"overload_floor,omitempty" schema:"default: 0s"`
	// Statuses that end the callback at once. Not given: 410.
	StopOn *[]int `json:"stop_on,omitempty" schema:"default: [410]"`
}

// PolicyMembers are the members of a policy object in a response.
type PolicyMembers struct {
	Tiers         []Duration `json:"tiers"`
	RepeatLast    bool       `json:"repeat_last"`
	Deadline      Duration   `json:"deadline" api:"null"`
	Timeout       Duration   `json:"timeout"`
	Jitter        float64    `json:"jitter"`
	RetryAfterCap Duration   `json:"retry_after_cap"`
	OverloadFloor Duration   `json:"overload_floor"`
	StopOn        []int      `json:"stop_on"`
}

// A NamedPolicy is a policy with a name.
type NamedPolicy struct {
	Name  string `json:"name"`
	About string `json:"about" api:"null"`
	// True: it belongs to the project. False: it is built in.
	Own bool `json:"own"`
	PolicyMembers
	// Null: the last tier repeats.
	Attempts int `json:"attempts" api:"null"`
	// Sum of all tiers.
	Sum   Duration `json:"sum"`
	SumMs int64    `json:"sum_ms"`
	// Present only if the request has from: the time of each attempt if each fails at once, at most 101.
	Times []time.Time `json:"times,omitempty"`
}

// A PolicyPut creates or replaces a named policy.
type PolicyPut struct {
	Policy
	Change
}

// A SuccessRule says which response is a success.
type SuccessRule struct {
	Status Statuses  `json:"status,omitempty"`
	Body   *BodyTest `json:"body,omitempty"`
	// The callback becomes dead with the reason rejected.
	PermanentIf *Condition `json:"permanent_if,omitempty"`
	// The receiver is busy: the callback is postponed, and the attempt is not counted.
	DeferIf    *Condition `json:"defer_if,omitempty"`
	DeferAfter Duration   `json:"defer_after,omitempty" schema:"default: 3s"`
	MaxDefers  int        `json:"max_defers,omitempty" schema:"default: 100"`
}

// Statuses are status codes and ranges: 200, "200-299".
type Statuses []any

// A Condition is a test of a response.
type Condition struct {
	Status Statuses  `json:"status,omitempty"`
	Body   *BodyTest `json:"body,omitempty"`
}

// A BodyTest is a test of a response body: exactly one of equals, iequals, contains, prefix, regex and json.
type BodyTest struct {
	Equals   string      `json:"equals,omitempty"`
	IEquals  string      `json:"iequals,omitempty"`
	Contains string      `json:"contains,omitempty"`
	Prefix   string      `json:"prefix,omitempty"`
	Regex    string      `json:"regex,omitempty"`
	Trim     bool        `json:"trim,omitempty"`
	JSON     []Predicate `json:"json,omitempty"`
}

// A Predicate has a place (pointer, xml or status) and a test of its value (eq, ne, in, not_in, exists, gt,
// ge, lt, le or matches). Or it has all: a list of predicates that must all match.
type Predicate map[string]any

// A NamedRule is a success rule with a name.
type NamedRule struct {
	Name  string          `json:"name"`
	About string          `json:"about" api:"null"`
	Own   bool            `json:"own"`
	Rule  json.RawMessage `json:"rule" schema:"$ref: SuccessRule"`
}

// A RulePut creates or replaces a named success rule.
type RulePut struct {
	SuccessRule
	Change
}

// A NamedProfile is a preset of policy, success rule, signer and timeout. Null: the profile does not set it.
type NamedProfile struct {
	Name    string `json:"name"`
	About   string `json:"about" api:"null"`
	Own     bool   `json:"own"`
	Policy  Choice `json:"policy" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer" schema:"$ref: SignerChoice"`
	// Overrides the timeout of the policy.
	Timeout Duration `json:"timeout" api:"null"`
}

// A ProfilePut creates or replaces a named profile.
type ProfilePut struct {
	Policy  Choice   `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Choice   `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Choice   `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	Timeout Duration `json:"timeout,omitempty"`
	Change
}

// Policies lists the named policies, the project's own first. If from is not zero, each policy has the times
// of its attempts for a first attempt at from.
func (c *Client) Policies(from time.Time) List[NamedPolicy] {
	return list[NamedPolicy](c, params{"from": instant(from)}.query(), "policies")
}

// Policy returns one policy. The name may also be a formula, such as exp(1s,2,1h,10).
func (c *Client) Policy(ctx context.Context, name string, from time.Time) (NamedPolicy, error) {
	return read[NamedPolicy](ctx, c, params{"from": instant(from)}.query(), "policies", name)
}

// PutPolicy creates or replaces a policy of the project.
func (c *Client) PutPolicy(ctx context.Context, name string, r PolicyPut) (NamedPolicy, error) {
	return call[NamedPolicy](ctx, c, "PUT", r, "policies", name)
}

// DeletePolicy deletes a policy of the project.
func (c *Client) DeletePolicy(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "policies", name)
}

// SuccessRules lists the named success rules, the project's own first.
func (c *Client) SuccessRules() List[NamedRule] { return list[NamedRule](c, nil, "success_rules") }

// SuccessRule returns one success rule.
func (c *Client) SuccessRule(ctx context.Context, name string) (NamedRule, error) {
	return read[NamedRule](ctx, c, nil, "success_rules", name)
}

// PutSuccessRule creates or replaces a success rule of the project.
func (c *Client) PutSuccessRule(ctx context.Context, name string, r RulePut) (NamedRule, error) {
	return call[NamedRule](ctx, c, "PUT", r, "success_rules", name)
}

// DeleteSuccessRule deletes a success rule of the project.
func (c *Client) DeleteSuccessRule(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "success_rules", name)
}

// Profiles lists the named profiles, the project's own first.
func (c *Client) Profiles() List[NamedProfile] { return list[NamedProfile](c, nil, "profiles") }

// Profile returns one profile.
func (c *Client) Profile(ctx context.Context, name string) (NamedProfile, error) {
	return read[NamedProfile](ctx, c, nil, "profiles", name)
}

// PutProfile creates or replaces a profile of the project.
func (c *Client) PutProfile(ctx context.Context, name string, r ProfilePut) (NamedProfile, error) {
	return call[NamedProfile](ctx, c, "PUT", r, "profiles", name)
}

// DeleteProfile deletes a profile of the project.
func (c *Client) DeleteProfile(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "profiles", name)
}

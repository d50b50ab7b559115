package client

import (
	"context"
	"encoding/json"
	"time"
)

// A Policy says when a failed callback is attempted again.
type Policy struct {
	// Tier i is the wait after failed attempt i, 0s to 400d; [] is a single attempt.
	Tiers      []Duration `json:"tiers" api:"required" schema:"maxItems: 100"`
	RepeatLast bool       `json:"repeat_last,omitempty" schema:"default: false"`
	// From the first due time; then it ends as exhausted.
	Deadline Duration `json:"deadline,omitempty"`
	// 100ms to 60s.
	Timeout Duration `json:"timeout,omitempty" schema:"default: 15s"`
	// A wait is lengthened by up to this share of it, by chance.
	Jitter        float64  `json:"jitter,omitempty" schema:"minimum: 0, maximum: 1, default: 0"`
	RetryAfterCap Duration `json:"retry_after_cap,omitempty" schema:"default: 1h"`
	// The least wait after a 429 or a time-out.
	OverloadFloor Duration `json:"overload_floor,omitempty" schema:"default: 0s"`
	// Statuses that end it at once; none are given: 410.
	StopOn *[]int `json:"stop_on,omitempty" schema:"default: [410]"`
}

// PolicyMembers are what a policy given whole is made of, as the server shows it.
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

// A NamedPolicy is a policy that can be chosen by its name.
type NamedPolicy struct {
	Name  string `json:"name"`
	About string `json:"about" api:"null"`
	// true: the project's own; false: every project knows it.
	Own bool `json:"own"`
	PolicyMembers
	// null where the last tier repeats.
	Attempts int `json:"attempts" api:"null"`
	// All tiers together.
	Sum   Duration `json:"sum"`
	SumMs int64    `json:"sum_ms"`
	// Only with from: when each attempt is made if all fail at once; at most 101.
	Times []time.Time `json:"times,omitempty"`
}

// A PolicyPut gives a policy a name.
type PolicyPut struct {
	Policy
	Change
}

// A SuccessRule says which answer is a success.
type SuccessRule struct {
	Status Statuses  `json:"status,omitempty"`
	Body   *BodyTest `json:"body,omitempty"`
	// It ends as dead with the reason rejected.
	PermanentIf *Condition `json:"permanent_if,omitempty"`
	// The receiver is busy with it: it is put back without a charge.
	DeferIf    *Condition `json:"defer_if,omitempty"`
	DeferAfter Duration   `json:"defer_after,omitempty" schema:"default: 3s"`
	MaxDefers  int        `json:"max_defers,omitempty" schema:"default: 100"`
}

// Statuses are statuses and ranges of them: 200, "200-299".
type Statuses []any

// A Condition is what an answer must be like.
type Condition struct {
	Status Statuses  `json:"status,omitempty"`
	Body   *BodyTest `json:"body,omitempty"`
}

// A BodyTest is what a body must be like: one of equals, iequals, contains, prefix, regex and json.
type BodyTest struct {
	Equals   string      `json:"equals,omitempty"`
	IEquals  string      `json:"iequals,omitempty"`
	Contains string      `json:"contains,omitempty"`
	Prefix   string      `json:"prefix,omitempty"`
	Regex    string      `json:"regex,omitempty"`
	Trim     bool        `json:"trim,omitempty"`
	JSON     []Predicate `json:"json,omitempty"`
}

// A Predicate is a place (pointer, xml or status) and what must be there (eq, ne, in, not_in, exists, gt,
// ge, lt, le or
// matches); or all of several.
type Predicate map[string]any

// A NamedRule is a success rule that can be chosen by its name.
type NamedRule struct {
	Name  string          `json:"name"`
	About string          `json:"about" api:"null"`
	Own   bool            `json:"own"`
	Rule  json.RawMessage `json:"rule" schema:"$ref: SuccessRule"`
}

// A RulePut gives a success rule a name.
type RulePut struct {
	SuccessRule
	Change
}

// A NamedProfile is a profile: policy, success rule, signer and time-out in one word. What is null it does
// not choose.
type NamedProfile struct {
	Name    string `json:"name"`
	About   string `json:"about" api:"null"`
	Own     bool   `json:"own"`
	Policy  Choice `json:"policy" schema:"$ref: PolicyChoice"`
	Success Choice `json:"success" schema:"$ref: SuccessChoice"`
	Signer  Choice `json:"signer" schema:"$ref: SignerChoice"`
	// It replaces that of the policy.
	Timeout Duration `json:"timeout" api:"null"`
}

// A ProfilePut gives a profile a name.
type ProfilePut struct {
	Policy  Choice   `json:"policy,omitzero" schema:"$ref: PolicyChoice"`
	Success Choice   `json:"success,omitzero" schema:"$ref: SuccessChoice"`
	Signer  Choice   `json:"signer,omitzero" schema:"$ref: SignerChoice"`
	Timeout Duration `json:"timeout,omitempty"`
	Change
}

// Policies lists the policies that can be named, the project's own first. Unless from is zero, each says
// when the
// attempts of a ladder that begins then are made.
func (c *Client) Policies(from time.Time) List[NamedPolicy] {
	return list[NamedPolicy](c, params{"from": instant(from)}.query(), "policies")
}

// Policy returns one policy, also one that a formula makes, such as exp(1s,2,1h,10).
func (c *Client) Policy(ctx context.Context, name string, from time.Time) (NamedPolicy, error) {
	return read[NamedPolicy](ctx, c, params{"from": instant(from)}.query(), "policies", name)
}

// PutPolicy gives a policy a name in the project.
func (c *Client) PutPolicy(ctx context.Context, name string, r PolicyPut) (NamedPolicy, error) {
	return call[NamedPolicy](ctx, c, "PUT", r, "policies", name)
}

// DeletePolicy takes the name of an own policy away.
func (c *Client) DeletePolicy(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "policies", name)
}

// SuccessRules lists the success rules that can be named, the project's own first.
func (c *Client) SuccessRules() List[NamedRule] { return list[NamedRule](c, nil, "success_rules") }

// SuccessRule returns one success rule.
func (c *Client) SuccessRule(ctx context.Context, name string) (NamedRule, error) {
	return read[NamedRule](ctx, c, nil, "success_rules", name)
}

// PutSuccessRule gives a success rule a name in the project.
func (c *Client) PutSuccessRule(ctx context.Context, name string, r RulePut) (NamedRule, error) {
	return call[NamedRule](ctx, c, "PUT", r, "success_rules", name)
}

// DeleteSuccessRule takes the name of an own success rule away.
func (c *Client) DeleteSuccessRule(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "success_rules", name)
}

// Profiles lists the profiles that can be named, the project's own first.
func (c *Client) Profiles() List[NamedProfile] { return list[NamedProfile](c, nil, "profiles") }

// Profile returns one profile.
func (c *Client) Profile(ctx context.Context, name string) (NamedProfile, error) {
	return read[NamedProfile](ctx, c, nil, "profiles", name)
}

// PutProfile gives a profile a name in the project.
func (c *Client) PutProfile(ctx context.Context, name string, r ProfilePut) (NamedProfile, error) {
	return call[NamedProfile](ctx, c, "PUT", r, "profiles", name)
}

// DeleteProfile takes the name of an own profile away.
func (c *Client) DeleteProfile(ctx context.Context, name, reason string) error {
	return c.remove(ctx, reason, "profiles", name)
}

package api

import (
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// This file reads how something is to be sent: the same fields stand in callbacks, events, endpoints, profiles and projects.

// choose decodes a policy, a success rule, a signer or a profile.
func (f *fields) choose(name string, raw []byte, to *accept.Choice) {
	switch name {
	case "policy":
		f.policy(raw, to)
	case "success":
		f.success(raw, to)
	case "signer":
		f.signer(raw, to)
	case "profile":
		f.text("profile", raw, &to.Profile)
	}
}

// success takes a rule's name, or the bytes of one given whole, which the engine reads.
func (f *fields) success(raw []byte, to *accept.Choice) {
	switch raw[0] {
	case 'n':
	case '"':
		f.text("success", raw, &to.Success)
	case '{':
		to.SuccessRule = raw
	default:
		f.add("success", "must be a success rule's name or an object")
	}
}

// signer takes a signer's name, or the text of an object with its options.
func (f *fields) signer(raw []byte, to *accept.Choice) {
	switch raw[0] {
	case 'n':
		return
	case '{':
		to.Signer = string(raw)
		return
	case '"':
		if s, wrong := decodeText(raw, false); wrong != "" {
			f.add("signer", wrong)
			return
		} else if !strings.HasPrefix(s, "{") { // an object within a text is no name
			to.Signer = s
			return
		}
	}
	f.add("signer", "must be a signer's name or an object")
}

// policy takes a name or a policy given whole.
func (f *fields) policy(raw []byte, to *accept.Choice) {
	switch raw[0] {
	case 'n':
	case '"':
		f.text("policy", raw, &to.PolicyName)
	case '{':
		before, p := len(f.invalid), emptyPolicy()
		f.object("policy", "policy.", raw, func(key, value []byte) bool { return f.policyMember("policy.", key, value, &p) })
		f.policyEnd("policy.", &p)
		if len(f.invalid) == before {
			to.Policy, to.PolicyGiven = p, true
		}
	default:
		f.add("policy", "must be a policy's name or an object")
	}
}

// emptyPolicy is what a policy given whole starts from.
func emptyPolicy() store.Policy {
	p := accept.DefaultPolicy()
	p.Tiers = nil
	return p
}

// policyMember decodes one field of a policy that is given whole, and says whether there is such a field. Its name has the prefix.
func (f *fields) policyMember(prefix string, key, value []byte, p *store.Policy) bool {
	name := prefix + string(key)
	switch string(key) {
	case "tiers":
		p.Tiers = f.tiers(name, value)
	case "repeat_last":
		f.boolean(name, value, &p.RepeatLast)
	case "deadline":
		f.wait(name, value, &p.Deadline)
	case "timeout":
		f.wait(name, value, &p.Timeout)
	case "jitter":
		f.number(name, value, &p.Jitter)
	case "retry_after_cap":
		f.wait(name, value, &p.RetryAfterCap)
	case "overload_floor":
		f.wait(name, value, &p.OverloadFloor)
	case "stop_on":
		p.StopOn = f.statuses(name, value, p.StopOn)
	default:
		return false
	}
	return true
}

// policyEnd says what a policy given whole lacks.
func (f *fields) policyEnd(prefix string, p *store.Policy) {
	if p.Tiers == nil {
		f.add(prefix+"tiers", "is needed; [] is a single attempt")
	}
}

// wait decodes a duration that stays as it is where none is given.
func (f *fields) wait(name string, value []byte, to *time.Duration) {
	got := to
	f.duration(name, value, &got)
	*to = *got
}

// tiers returns nil for null only.
func (f *fields) tiers(name string, raw []byte) []time.Duration {
	tiers := []time.Duration{}
	if !f.atMost(maxTiers, name, raw, func(name string, value []byte) {
		wait, wrong := decodeDuration(value)
		if wrong != "" {
			f.add(name, wrong)
		}
		tiers = append(tiers, wait)
	}) {
		return nil
	}
	return tiers
}

// statuses returns otherwise for null.
func (f *fields) statuses(name string, raw []byte, otherwise []int) []int {
	statuses := []int{}
	if !f.atMost(maxStatuses, name, raw, func(name string, value []byte) {
		n := 0
		if isNull(value) {
			f.add(name, "must be a whole number from 1 on")
		}
		f.count(name, value, &n)
		statuses = append(statuses, n)
	}) {
		return otherwise
	}
	return statuses
}

// refuseMask names the headers that have the mask for a value; otherwise is what the caller may do instead.
func (f *fields) refuseMask(headers []store.Header, otherwise string) {
	for _, h := range headers {
		if query.Masked(h) {
			f.add("headers."+h.Name, `is "***", which stands for a value that is not shown: give the value itself, or `+otherwise)
		}
	}
}

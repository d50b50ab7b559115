package dispatch_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Everything that is wrong with a poll is named as it stands in the request.
func TestWrongPolls(t *testing.T) {
	with(bank("SUCCESS")).run(t, func(b *fixture) {
		for _, c := range []struct {
			field  string
			change func(*accept.PollSubmission)
		}{
			{"ref", func(p *accept.PollSubmission) { p.Ref = "" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "ftp://bank" }},
			{"request.url", func(p *accept.PollSubmission) { p.URL = "" }},
			{"request.endpoint", func(p *accept.PollSubmission) { p.URL, p.Endpoint = "", "unknown" }},
			{"request.headers.Host",
				func(p *accept.PollSubmission) { p.Headers = []store.Header{{Name: "Host", Value: "x"}} }},
			{"request.payload", func(p *accept.PollSubmission) { p.Method = "POST" }},
			{"request.signer", func(p *accept.PollSubmission) { p.Signer = "wax" }},
			{"policy", func(p *accept.PollSubmission) { p.PolicyGiven, p.PolicyName = false, "nosuch" }},
			{"until", func(p *accept.PollSubmission) { p.Until = nil }},
			{"until.success[0].pointer", func(p *accept.PollSubmission) {
				p.Until = []byte(`{"success": [{"pointer": "trade_state", "eq": 1}]}`)
			}},
			{"evaluate", func(p *accept.PollSubmission) { p.Evaluate = []byte(`{}`) }},
			{"error_budget", func(p *accept.PollSubmission) { p.ErrorBudget = new(-1) }},
			{"context", func(p *accept.PollSubmission) {
				p.Context = []byte(`"` + strings.Repeat("x", 4096) + `"`)
			}},
			{"on_result.url", func(p *accept.PollSubmission) { p.OnResult.URL = "shop" }},
			{"on_result.delay", func(p *accept.PollSubmission) { p.OnResult.Delay = new(-time.Second) }},
		} {
			p := paidPoll("o-1", time.Second)
			c.change(&p)
			_, err := b.engine.AcceptPoll(b.Context(), project, p)
			b.check(slices.ContainsFunc(b.wrongFields(err),
				func(f string) bool { return f == c.field || strings.HasPrefix(f, c.field+"[") }),
				"want %s, got %v", c.field, err)
		}
		b.is("accepted", b.counts()[store.Scheduled], 0)
	})
}

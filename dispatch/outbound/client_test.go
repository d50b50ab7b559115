package outbound

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestPanicEndsOneAttempt(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := newTestClient(t, Options{
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
		Transport: roundTrip(func(*http.Request) (*http.Response, error) { panic("boom") }),
	})
	for text, want := range map[store.JSONText]string{
		"": "panic unknown, uncharged",
		`{"until":{"success":[{"status":[200]}]},"error_budget":5}`: "panic unknown, uncharged, max errors 5",
	} {
		r := newRequest("https://shop.example/")
		r.Poll, r.Success.Rule = text != "", text
		got := c.Send(t.Context(), r)
		expect(t, got, want)
		if got.Rule != nil {
			t.Errorf("an attempt without an answer has a rule: %+v", got.Rule)
		}
	}
	if !strings.Contains(log.String(), "boom") || !strings.Contains(log.String(), "client_test.go") {
		t.Errorf("the log does not show the stack: %s", log.String())
	}
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{MaxIdlePerHost: -1}, {Version: "1\r\n2"}} {
		if _, err := New(o); err == nil {
			t.Errorf("New(%+v) succeeds", o)
		}
	}
}

// TestCompiledRulesAreCached checks success rules and poll rules.
func TestCompiledRulesAreCached(t *testing.T) {
	t.Parallel()
	c := newTestClient(t, Options{})
	for text, isPoll := range map[store.JSONText]bool{
		`{"status":[200]}`: false, `{"until":{"success":[{"status":[200]}]}}`: true,
	} {
		first, _ := c.criteriaFor(&Request{Poll: isPoll, Success: store.Success{Rule: text}})
		again, _ := c.criteriaFor(&Request{Poll: isPoll, Success: store.Success{Name: "mine", Rule: text}})
		if first.rule != again.rule || first.poll != again.poll {
			t.Errorf("%s is compiled twice: %+v and %+v", text, first, again)
		}
		if first.name == "mine" || again.name != "mine" {
			t.Errorf("%s: names %q and %q", text, first.name, again.name)
		}
		if (first.poll != nil) != isPoll || (first.rule != nil) == isPoll {
			t.Errorf("%s: poll %v, but compiled to %+v", text, isPoll, first)
		}
	}
}

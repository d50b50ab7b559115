package alert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A history advances one alert in steps of ten seconds, as EvaluateAlerts does, and sends its messages.
type history struct {
	t    *testing.T
	a    store.Alert
	now  int64
	ids  int
	rows map[string]store.AlertFiring
	// dead are the ids of messages that died.
	dead map[string]bool
}

func newHistory(t *testing.T, when store.AlertWhen) *history {
	return &history{t: t, a: store.Alert{ID: "A", When: when}, now: 1_000_000_000,
		rows: make(map[string]store.AlertFiring), dead: make(map[string]bool)}
}

// step evaluates once and returns what a message tells: "+a" for an instance that fired, "-a" for one that
// resolved.
func (h *history) step(found ...finding) (notified string) {
	h.t.Helper()
	h.now += 10_000
	var live []store.AlertFiring
	for _, r := range h.rows {
		r.Lost = h.dead[r.MessageID]
		if r.Live {
			live = append(live, r)
		}
	}
	// The order of the store.
	slices.SortFunc(live, func(a, b store.AlertFiring) int { return strings.Compare(a.Instance, b.Instance) })
	step := advanceAlert(&h.a, live, found, h.now, func() string {
		h.ids++
		return fmt.Sprintf("id%d", h.ids)
	})
	if step.reports(&h.a, h.now) {
		h.a.SentAt, h.a.SentID = h.now, fmt.Sprint("message at ", h.now)
		step.markReported(h.a.SentID)
		for _, r := range step.fired {
			notified += "+" + r.Instance
		}
		for _, r := range step.resolved {
			notified += "-" + r.Instance
		}
	}
	for id, r := range step.put {
		h.rows[id] = r
	}
	for _, id := range step.drop {
		delete(h.rows, id)
	}
	return notified
}

// want makes n steps, and checks that the last one tells a text and the others nothing.
func (h *history) want(text string, n int, found ...finding) {
	h.t.Helper()
	for i := range n {
		notified := h.step(found...)
		if expected := map[bool]string{true: text}[i == n-1]; notified != expected {
			h.t.Fatalf("step %d of %d reports %q, want %q", i+1, n, notified, expected)
		}
	}
}

func broken(name string) finding { return finding{instance: name, value: 9} }
func near(name string) finding   { return finding{instance: name, value: 8, near: true} }

// A firing needs the condition for a while, ends after a minute without it, and a value near the threshold
// changes nothing.
func TestHysteresis(t *testing.T) {
	t.Parallel()
	h := newHistory(t, store.AlertWhen{For: 30 * time.Second})
	h.want("", 3, broken("a"))
	h.want("", 1) // it was pending
	h.want("", 3, broken("a"))
	h.want("", 1, near("a")) // also not yet fired
	h.want("", 3, broken("a"))
	h.want("+a", 1, broken("a"))
	h.want("", 10, broken("a"))
	h.want("", 10, near("a"))
	h.want("", 6) // clear for a minute but one step
	h.want("", 1, near("a"))
	h.want("", 6)
	h.want("-a", 1)
	h.want("", 20)
	h.want("", 3, broken("a"))
	h.want("+a", 1, broken("a"))
	if n := len(h.rows); n != 2 {
		t.Errorf("%d firings, want 2", n)
	}
}

// One message a minute has everything that changed since the last one.
func TestOneMessageForMany(t *testing.T) {
	t.Parallel()
	h := newHistory(t, store.AlertWhen{})
	h.want("+a+b", 1, broken("a"), broken("b"))
	h.want("", 5, broken("b"), broken("c"))
	h.want("+c+d", 1, broken("b"), broken("c"), broken("d"), near("e"))
	if notified := h.step(broken("b"), broken("c")); notified != "" {
		t.Errorf("%q a step after a message", notified)
	}
}

// A firing whose message died is reported again after a pause, or with the next message.
func TestALostMessageIsRepeated(t *testing.T) {
	t.Parallel()
	h := newHistory(t, store.AlertWhen{})
	h.want("+a", 1, broken("a"))
	h.dead[h.a.SentID] = true
	const pause = int(repeatAfter / (10 * time.Second))
	h.want("+a", pause, broken("a"))
	h.dead[h.a.SentID] = true
	h.want("+a", pause, broken("a"))
	h.want("", 2*pause, broken("a")) // it arrived
	h.want("+b", 1, broken("a"), broken("b"))
	h.dead[h.a.SentID] = true
	h.want("", 6, broken("a"), broken("b"))
	h.want("+c+b", 1, broken("a"), broken("b"), broken("c"))
	h.dead[h.a.SentID] = true
	h.want("-a-b-c", 7)
	h.want("", 2*pause)
}

// A silence has no messages. What fires after it is reported again, once; what ended in it is not.
func TestSilence(t *testing.T) {
	t.Parallel()
	h := newHistory(t, store.AlertWhen{})
	h.want("+a+b", 1, broken("a"), broken("b"))
	h.a.SilenceUntil = h.now + 200_000
	h.want("", 10, broken("a"), broken("c"))
	h.want("+a+c", 10, broken("a"), broken("c"))
	h.want("", 10, broken("a"), broken("c"))
}

// A hundred failing endpoints are one message, and the number of followed instances is bounded.
func TestManyInstances(t *testing.T) {
	t.Parallel()
	h := newHistory(t, store.AlertWhen{Kind: store.AlertEndpointSuccess, Below: 90})
	var found []finding
	for i := range maxInstances + 50 {
		found = append(found, broken(fmt.Sprintf("%03d", i)))
	}
	h.step(found...)
	if len(h.rows) != maxInstances {
		t.Errorf("%d firings are followed, want %d", len(h.rows), maxInstances)
	}
	lines := english.cut(make([]string, 100))
	if len(lines) != maxListed+1 || lines[maxListed] != "… and 90 more" {
		t.Errorf("%d lines, the last %q", len(lines), lines[len(lines)-1])
	}
}

// The share of an endpoint is over the window only, also when a window begins late.
func TestTotalWindow(t *testing.T) {
	t.Parallel()
	w := totalWindows{windows: make(map[windowKey]*totalWindow)}
	key, now := windowKey{"p", time.Minute}, int64(1_000_000)
	total := store.EndpointTotal{ID: "e"}
	for i := range 20 {
		total.Failed = int64(10 * i)
		s, err := w.since(key, now, []store.EndpointTotal{total})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := total.Failed-s.totals["e"].failed, int64(10*min(i, 6)); got != want {
			t.Errorf("sample %d: %d attempts in the window, want %d", i, got, want)
		}
		now += 10_000
	}
	if w.samples > windowParts {
		t.Errorf("%d samples are kept", w.samples)
	}
	w.forget(now + 120_000)
	if len(w.windows) != 0 || w.samples != 0 {
		t.Errorf("%d windows with %d samples after their use", len(w.windows), w.samples)
	}
}

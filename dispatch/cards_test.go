package dispatch_test

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func guarded(by store.PanGuard) tweak { return func(o *options) { o.PanGuard = by } }

// TestEvidenceShowsNoCardNumber: the report contains no card number, neither in the reference nor in the
// response.
func TestEvidenceShowsNoCardNumber(t *testing.T) {
	with(nil, guarded(store.PanMask)).run(t, func(b *fixture) {
		id := b.accept(accept.Submission{Ref: "4111111111111111"}).ID
		b.ends("succeeded", time.Minute, id)
		report := must(b.engine.Report(b.Context(), project, id, control.MaxReport))
		text := report.Mask(report.Callback.Ref + " " + report.Attempts[0].ResponseBody)
		b.check(strings.Contains(text, "411111******1111") && !store.HasPAN([]byte(text)), "evidence: %s",
			text)
	})
}

// TestEventIsCheckedForCardsOnce: an event is checked for card numbers once, not for each endpoint, so the
// allocations of the check do not grow with the endpoints.
func TestEventIsCheckedForCardsOnce(t *testing.T) {
	body := []byte(`"` + strings.Repeat("1 ", 50<<10) + `"`)
	allocated := func(guard store.PanGuard, endpoints int) (n int64) {
		with(nil, guarded(guard)).runSerial(t, func(b *fixture) {
			for range endpoints {
				b.endpoint(control.EndpointChange{Topics: &[]string{"payment"}})
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			must(b.event(accept.Submission{Topic: "payment", Body: body, BodyField: "payload"}))
			runtime.ReadMemStats(&after)
			n = int64(after.Mallocs - before.Mallocs)
		})
		return n
	}
	one := allocated(store.PanReject, 1) - allocated(store.PanOff, 1)
	many := allocated(store.PanReject, 20) - allocated(store.PanOff, 20)
	if many > 3*one {
		t.Errorf("%d allocations for 20 endpoints, %d for one", many, one)
	}
}

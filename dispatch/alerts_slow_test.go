package dispatch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// pendingEvents is a store with endpoint events that a test puts there.
type pendingEvents struct {
	dispatch.Store
	// Events with lower ids are refused.
	refusedBefore string

	mu   sync.Mutex
	list []store.EndpointEvent
}

func (p *pendingEvents) EndpointEvents(
	_ context.Context, after string, limit int,
) ([]store.EndpointEvent, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var page []store.EndpointEvent
	for _, e := range p.list {
		if e.ID > after && len(page) < limit {
			page = append(page, e)
		}
	}
	return page, nil
}

func (p *pendingEvents) RemoveEndpointEvents(ctx context.Context, ids []string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(e store.EndpointEvent) bool { return slices.Contains(ids, e.ID) })
	return nil
}

func (p *pendingEvents) add(events ...store.EndpointEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = append(p.list, events...)
}

func (p *pendingEvents) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.list)
}

// PlanEvent is slow, and refuses the events that the test says.
func (p *pendingEvents) PlanEvent(ctx context.Context, plan store.EventPlan) (store.EventPlan, bool, error) {
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
		return plan, false, ctx.Err()
	}
	if plan.Idempotency.Key < p.refusedBefore {
		return plan, false, errDown
	}
	return p.Store.PlanEvent(ctx, plan)
}

// slowPlans makes the plans of events slow.
func slowPlans(o *dispatch.Options) { o.Store = &pendingEvents{Store: o.Store} }

// However slow SQL is, and whatever is refused before them, endpoint events are published.
func TestManyEndpointEventsOnASlowDatabase(t *testing.T) {
	for name, refused := range map[string]int{"slow": 0, "the first are refused": 40} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eventID := func(n int) string { return fmt.Sprintf("event-%03d", n) }
				pending := &pendingEvents{refusedBefore: eventID(refused)}
				b := newFixture(t, always(200, ""), func(o *dispatch.Options) {
					pending.Store, o.Store = o.Store, pending
				})
				ep := b.endpoint(control.EndpointChange{URL: ptr("https://ops.example/")})
				for i := range 250 {
					pending.add(store.EndpointEvent{
						ID: eventID(i), Project: store.DefaultProject, EndpointID: ep.ID,
						Kind: store.EndpointRecovered, At: b.engine.Now(),
					})
				}
				time.Sleep(10 * time.Minute)
				if left := pending.left(); left != refused {
					t.Errorf("%d events are left, want %d", left, refused)
				}
			})
		})
	}
}

// The same holds for what dies.
func TestManyDeadOnesOnASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(t, failing("shop"), slowPlans)
		b.endpoint(control.EndpointChange{
			URL: ptr("https://ops.example/"), Topics: &[]string{"dispatcher.*"},
			Choice: accept.Choice{PolicyName: "none"},
		})
		time.Sleep(10 * time.Second)
		ids := b.bury(250)
		time.Sleep(10 * time.Minute)
		if n := len(b.alerts()); n != len(ids) {
			t.Errorf("%d of %d events were sent", n, len(ids))
		}
	})
}

// A project of which much has died does not hold up the others.
func TestDeadOnesOfManyProjectsOnASlowDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const other, few = "other", 50
		b := newFixture(t, failing("shop"), slowPlans)
		b.must(b.engine.CreateProject(t.Context(), control.ProjectChange{ID: other}, operator))
		for _, project := range []string{store.DefaultProject, other} {
			b.must(b.engine.CreateEndpoint(t.Context(), project, control.EndpointChange{
				URL: ptr("https://ops.example/" + project), Topics: &[]string{"dispatcher.*"},
			}, operator))
		}
		time.Sleep(10 * time.Second)
		dying := make([]accept.Submission, few)
		for i := range dying {
			dying[i] = tiers()
			dying[i].URL, dying[i].Body = "https://shop.example/", []byte("{}")
		}
		for range 20 {
			b.must(b.engine.Accept(t.Context(), store.DefaultProject, dying))
		}
		b.must(b.engine.Accept(t.Context(), other, dying))
		time.Sleep(2 * time.Minute)
		told := 0
		for _, h := range b.receiver.seen() {
			if strings.Contains(h.url, "ops.example/"+other) {
				told++
			}
		}
		if told != few {
			t.Errorf("%d of %d events were sent", told, few)
		}
	})
}

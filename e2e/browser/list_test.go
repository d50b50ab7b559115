package browser

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/e2e/harness"
)

// A list is narrowed, ordered and walked through by its address alone: what is asked for can be sent to somebody, left and come back to. With
// scripts nothing of it loads the page anew; without them it is the same.
func TestBrowserListsAreWalkedThrough(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	s := newScene(t, harness.SQLiteEmbedded).many()
	for _, plain := range []bool{false, true} {
		b := newTab(t, s.Base)
		h := hands{b, false, plain}
		if plain {
			b.scripts(false)
		}
		b.signIn(harness.AdminKey)
		b.open("/ui/callbacks")
		rows := func() []string {
			return ask[[]string](b, `[...document.querySelectorAll("tbody tr[data-id]")].map((e) => e.dataset.id)`)
		}
		stays := h.stays("a list is walked through")
		first := rows()
		if len(first) == 0 {
			t.Fatal("there is nothing in the list")
		}
		b.click(".pager a", "Next page")
		b.arrive("/ui/callbacks?cursor=")
		harness.Eventually(t, pageTime, "other rows are shown", func() error {
			second := rows()
			if len(second) == 0 || slices.ContainsFunc(second, func(id string) bool { return slices.Contains(first, id) }) {
				return fmt.Errorf("they are %v", second)
			}
			return nil
		})
		ask[bool](b, `history.back(), true`)
		harness.Eventually(t, pageTime, "one comes back to the first page", func() error {
			if again := rows(); b.where() != "/ui/callbacks" || !slices.Equal(again, first) {
				return fmt.Errorf("at %s are %v", b.where(), again)
			}
			return nil
		})
		b.click(".chips a", "dead")
		b.arrive("/ui/callbacks?state=dead")
		b.see("tbody .badge", "dead")
		b.seeNot("tbody .badge", "scheduled")
		b.fill("#ff-topic", "payment.succeeded")
		b.click(".filters button", "Filter")
		b.arrive("/ui/callbacks?")
		b.see("tbody .small", "payment.succeeded")
		b.seeNot("tbody .small", "refund.succeeded")
		b.see(".chips a[aria-current]", "dead")
		b.choose("#ff-class", "rejected") // which asks at once, where scripts run
		if plain {
			b.click(".filters button", "Filter")
		}
		harness.Eventually(t, pageTime, "the class is asked for", func() error {
			if at := b.where(); !strings.Contains(at, "class=rejected") {
				return errors.New(at)
			}
			return nil
		})
		b.click(".filters a", "Show all")
		b.arrive("/ui/callbacks")
		stays()

		// An address that was sent to somebody shows them the same.
		b.open("/ui/callbacks?state=dead&topic=payment.succeeded")
		b.see("tbody .small", "payment.succeeded")
		if is := ask[string](b, `document.querySelector("#ff-topic").value`); is != "payment.succeeded" {
			t.Errorf("the field of the topic has %q", is)
		}
		b.open("/ui/callbacks?ref=nothing-of-this-kind") // by an index: a look row by row says that it goes on, when its time is up
		b.see(".empty", "Nothing matches")
		b.open("/ui/callbacks?status_code=many")
		b.see("[role=alert]", "These conditions cannot be meant")
	}
}

// A list whose condition no index serves is looked through in steps. The page goes on by itself until it is
// stopped, and again when it is asked to. All of it is one entry in the history. Here no callback matches.
func TestBrowserLooksOn(t *testing.T) {
	harness.BlackBox(t)
	t.Parallel()
	tr := harness.NewTrial(t, "looks on")
	tr.UseBackend(harness.NewBackend(t, harness.SQLiteEmbedded))
	tr.Seed(tr.Serve(), harness.Seeding{N: 20_000, Lanes: 100, Shape: func(lane int) harness.Submission {
		return tr.Callback("plain", harness.SeedRef(lane))
	}})
	p := tr.Serve()
	x := harness.StartProxy(t, hostOf(t, p.Base))
	b := newTab(t, "http://"+x.Address)
	b.signIn(harness.AdminKey)
	b.open("/ui/callbacks")
	entries := ask[int](b, `history.length`)
	loads := b.documentsLoaded()

	x.Slow(2*time.Second, 0) // so that the look can be stopped before its last step
	b.fill("#ff-topic", "nothing")
	b.click(".filters button", "Filter")
	b.see(".empty time", "")
	b.click(".empty button", "Stop looking")
	b.see(".empty a", "Look on")
	x.Slow(0, 0)
	stopped := b.where()
	harness.Eventually(t, 5*time.Minute, "all is looked through", func() error {
		if at := b.where(); b.count("main:not([aria-busy]) .empty a", "Look on") > 0 { // again after half a minute
			b.click(".empty a", "Look on")
			harness.Eventually(t, pageTime, "it looks on", func() error {
				if b.where() == at {
					return errors.New(at)
				}
				return nil
			})
		}
		if b.count(".empty", "Nothing matches") == 0 {
			return errors.New(b.where())
		}
		return nil
	})
	if at := b.where(); at == stopped || !strings.Contains(at, "cursor=") {
		t.Errorf("it was stopped at %s, and has ended at %s", stopped, at)
	}
	if n := ask[int](b, `history.length`) - entries; n != 1 || b.documentsLoaded() != loads {
		t.Errorf("the condition and to look on have made %d entries in the history and loaded %d documents", n,
			b.documentsLoaded()-loads)
	}
	b.streams() // the page that is arrived at is up to date
}

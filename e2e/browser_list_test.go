package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A list is narrowed, ordered and walked through by its address alone: what is asked for can be sent to somebody, left and come back to. With
// scripts nothing of it loads the page anew; without them it is the same.
func TestBrowserListsAreWalkedThrough(t *testing.T) {
	blackBox(t)
	t.Parallel()
	s := newScene(t, embedded).many()
	for _, plain := range []bool{false, true} {
		b := newTab(t, s.base)
		h := hands{b, false, plain}
		if plain {
			b.scripts(false)
		}
		b.signIn(adminKey)
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
		eventually(t, pageTime, "other rows are shown", func() error {
			second := rows()
			if len(second) == 0 || slices.ContainsFunc(second, func(id string) bool { return slices.Contains(first, id) }) {
				return fmt.Errorf("they are %v", second)
			}
			return nil
		})
		ask[bool](b, `history.back(), true`)
		eventually(t, pageTime, "one comes back to the first page", func() error {
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
		eventually(t, pageTime, "the class is asked for", func() error {
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

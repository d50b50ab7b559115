package ui

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// TestEveryBlockHasACure: whatever blocks a callback, its row on the page of the order has a button or a link
// that helps, in each language, and what it links to exists. A block without a cure fails.
func TestEveryBlockHasACure(t *testing.T) {
	t.Parallel()
	// Nothing helps an attempt in progress: it ends within its timeout.
	const needless = control.BlockAttempting
	w := newWorld(`callbacks {} {"Ref":"o","EndpointID":"{7}","Lane":"ep_{7}","LockKey":"k"}`,
		`endpoints {"ID":"{7}","Name":"shop"}`, `lanes {"Key":"ep_{7}","EndpointID":"{7}"}`)
	w.keys["helper"] = store.Key{ID: testID(8), Name: "helper", Project: store.DefaultProject,
		Scopes: []store.Scope{store.ScopeRead, store.ScopeOperate}}
	w.has.Stop = store.Stop{At: testNow - 1, Until: store.Forever, By: "admin key", Reason: "drill"}
	for _, key := range []string{testKey, "helper", "reader"} {
		b := newBrowser(t, w)
		b.signIn(key)
		for _, language := range []string{"en", "zh-CN"} {
			b.headers.Set("Accept-Language", language)
			for _, code := range control.BlockCodes {
				block := control.Block{Code: code, Since: testNow - 1}
				if code == control.BlockOrder || code == control.BlockLock {
					block.Other = testID(1)
				}
				w.has.Explanation = control.Explanation{Blocking: []control.Block{block}}
				res := b.get("/ui/orders?ref=o").ok()
				if got := attr(find(res.doc, "html")[0], "lang"); got != language {
					t.Fatalf("the page is in %s, want %s", got, language)
				}
				cures := find(res.doc, ".order .do")
				if len(cures) == 0 {
					if code != needless && key != "reader" {
						t.Errorf("%s, %s: %s has no cure", key, language, code)
					}
					continue
				}
				text, to := strings.TrimSpace(textOf(cures[0])), attr(cures[0], "href")
				if text == "" || strings.Contains(text, "order.") {
					t.Errorf("%s, %s: the cure of %s has the text %q", key, language, code, text)
				}
				if action := attr(cures[0], "formaction"); action != "" {
					if key == "reader" || b.post(action, "ladder", "once").status != http.StatusSeeOther {
						t.Errorf("%s: %s: %s is refused", key, code, action)
					}
				} else if got := b.get(to).status; got != http.StatusOK {
					t.Errorf("%s, %s: %s leads to %s, which is %d", key, language, code, to, got)
				}
			}
		}
	}
}

// TestOrderOfOtherCallback: a callback that waits for another one links to it.
func TestOrderOfOtherCallback(t *testing.T) {
	t.Parallel()
	for _, code := range []string{control.BlockOrder, control.BlockLock} {
		w := newWorld(`callbacks {"Ref":"o","LockKey":"k"}`)
		w.has.Explanation.Blocking = []control.Block{{Code: code, Since: testNow - 5000,
			Until: testNow + 17_000, Other: testID(9)}}
		res := signedIn(t, w).get("/ui/orders?ref=o").ok()
		res.has(".order .do[href=/ui/callbacks/cb_"+testID(9)+"]", "Open that callback")
		res.has(".order .why-not", "in 17s")
	}
}

// TestActsOnAnOrder: many changes of the endpoint hide no act on the callbacks, and the page says what it
// leaves out.
func TestActsOnAnOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(`callbacks {"Ref":"o","EndpointID":"{7}"}`, `endpoints {"ID":"{7}","Name":"shop"}`)
	for i := range 120 {
		w.has.Entries = append(w.has.Entries, store.AuditEntry{ID: testID(200 - i), At: testNow - int64(i),
			Action: "endpoint.update", Object: testID(7)})
	}
	const old = testNow - 100_000
	w.has.Entries = append(w.has.Entries, store.AuditEntry{ID: testID(20), At: old,
		Action: "callback.cancel", Object: testID(1)})
	b := signedIn(t, w)
	res := b.get("/ui/orders?ref=o&show=manual&before=" + strconv.Itoa(old+1) + ".").ok()
	res.has(".events .line", "Callback canceled")
	res.has("section .small", "Only the last 100 actions on these callbacks")
	w.has.Entries = w.has.Entries[21:]
	res = b.get("/ui/orders?ref=o").ok()
	if strings.Contains(res.body, "Only the last 100 actions") {
		t.Error("the page says that acts are left out, but none are")
	}
}

// TestSmallHeldLanes: a held lane is found although 100 others have more open callbacks.
func TestSmallHeldLanes(t *testing.T) {
	t.Parallel()
	w := newWorld(`lanes 120 {"Open":50}`)
	small := &w.has.Lanes[110]
	small.Open, small.OwnPause, small.PausedUntil = 1, store.Forever, store.Forever
	b := signedIn(t, w)
	b.get("/ui/").ok().has(".attention strong", "1 paused lane with a backlog")
	res := b.get("/ui/lanes?sort=backlog&why=lane_paused").ok()
	res.has("tbody td a", small.Key)
	if rows := res.count("tbody tr"); rows != 1 {
		t.Errorf("%d lanes are listed, want 1", rows)
	}
}

package ui

import (
	"context"
	"crypto/sha256"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestStoredSessionHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := signedIn(t, w)
	if len(w.sessions) != 1 {
		t.Errorf("%d sessions, want 1", len(w.sessions))
	}
	for token, row := range w.sessions {
		if strings.Contains(b.cookies[sessionCookie], token) {
			t.Error("the stored token is the token of the cookie")
		}
		if strings.Contains(string(row.Data), testKey) {
			t.Error("the stored session contains the key")
		}
	}
}

// TestSignInRenewsTheToken is case 61, session fixation: a cookie that was planted before the sign-in must
// not be valid after it.
func TestSignInRenewsTheToken(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld())
	planted := b.cookies[sessionCookie]
	b.signIn(testKey)
	if got := b.cookies[sessionCookie]; got == planted || got == "" {
		t.Errorf("the token after the sign-in is %q", got)
	}
	b.cookies[sessionCookie] = planted
	b.get("/ui/callbacks").redirects("/ui/sign-in?next=%2Fui%2Fcallbacks")
	b.cookies[sessionCookie] = "planted"
	b.signIn(testKey)
	if b.cookies[sessionCookie] == "planted" {
		t.Error("the sign-in accepts a planted token")
	}
}

// TestPageViewsDoNotWriteSessions: sessionSeen changes at most once in seenEvery.
func TestPageViewsDoNotWriteSessions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := signedIn(t, w)
	for range 5 {
		b.get("/ui/callbacks").ok()
	}
	if n := w.count("UpdateSession"); n != 0 || len(w.sessions) != 1 {
		t.Errorf("5 page views wrote the session %d times; there are %d", n, len(w.sessions))
	}
}

// TestSignOutIsFinal: a request that began before the sign-out and ends after it writes its session, for the
// message about what it did. The session must stay deleted, and the cookie of the next sign-in valid.
func TestSignOutIsFinal(t *testing.T) {
	t.Parallel()
	w := newWorld(`callbacks {}`)
	var during func()
	w.Engine = beforeRetry{engineFace{w}, func() { during() }}
	b := signedIn(t, w)
	victim := *b
	victim.cookies = maps.Clone(b.cookies)
	during = func() { victim.post("/ui/sign-out").redirects("/ui/sign-in") }
	res := b.post("/ui/callbacks/cb_"+testID(1)+"/retry", "ladder", "once")
	if res.status != http.StatusSeeOther || len(w.changes) != 1 {
		t.Errorf("status %d, changes %q", res.status, w.changes)
	}
	if len(w.sessions) != 0 || len(res.header.Values("Set-Cookie")) != 0 {
		t.Errorf("%d sessions, cookies %q", len(w.sessions), res.header.Values("Set-Cookie"))
	}
	b.get("/ui/callbacks").redirects("/ui/sign-in?next=%2Fui%2Fcallbacks")
	during = func() {}
	b.signIn(testKey)
	b.post("/ui/callbacks/cb_"+testID(1)+"/retry", "ladder", "once")
	b.get("/ui/callbacks").ok().has(".flash", "sent")
}

// beforeRetry is an engine that calls do before each retry.
type beforeRetry struct {
	Engine
	do func()
}

func (e beforeRetry) Retry(
	ctx context.Context, project, id string, q control.RetryRequest, by store.Actor,
) (store.Callback, error) {
	e.do()
	return e.Engine.Retry(ctx, project, id, q, by)
}

// TestParallelGuessesAreLimited: an attempt must count before the key is looked up. Otherwise parallel
// attempts would all pass.
func TestParallelGuessesAreLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.Engine = slowKeys{engineFace{w}}
		b := newBrowser(t, w)
		statuses := make([]int, 50)
		var wg sync.WaitGroup
		for i := range statuses {
			wg.Go(func() { statuses[i] = b.post("/ui/sign-in", "key", "guess "+strconv.Itoa(i)).status })
		}
		wg.Wait()
		counted := make(map[int]int)
		for _, status := range statuses {
			counted[status]++
		}
		refused, limited := counted[http.StatusUnauthorized], counted[http.StatusTooManyRequests]
		if refused > 10 || refused+limited != len(statuses) {
			t.Errorf("responses by status: %v", counted)
		}
	})
}

// slowKeys is an engine without keys whose look-up takes 20 ms.
type slowKeys struct{ Engine }

func (slowKeys) AuthenticateHash(context.Context, [sha256.Size]byte) (store.Key, error) {
	time.Sleep(20 * time.Millisecond)
	return store.Key{}, store.ErrNotFound
}

func TestStaticFiles(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, newWorld())
	for _, name := range []string{"dispatcher.css", "dispatcher.js", "dispatcher.svg"} {
		path := b.ui.assets.names[name]
		res := b.get(path).ok()
		if !strings.Contains(res.header.Get("Cache-Control"), "immutable") || res.body == "" {
			t.Errorf("%s: %v", path, res.header)
		}
	}
}

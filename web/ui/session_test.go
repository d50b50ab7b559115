package ui

import (
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func TestStoredSessionHasNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := signedIn(t, w)
	if len(w.sessions) != 1 {
		t.Errorf("%d sessions", len(w.sessions))
	}
	for token, row := range w.sessions {
		if strings.Contains(b.cookies[sessionCookie], token) {
			t.Error("the token is stored as the browser has it")
		}
		if strings.Contains(string(row.Data), testKey) {
			t.Error("the session has the key")
		}
	}
}

// Case 61: whoever planted a session's cookie before the sign-in does not share the session.
func TestSignInRenewsTheToken(t *testing.T) {
	t.Parallel()
	b := signedIn(t, newWorld())
	planted := b.cookies[sessionCookie]
	b.signIn(testKey)
	if got := b.cookies[sessionCookie]; got == planted || got == "" {
		t.Errorf("the session goes on as %q", got)
	}
	b.cookies[sessionCookie] = planted
	b.get("/ui/callbacks").redirects("/ui/sign-in?next=%2Fui%2Fcallbacks")
	b.cookies[sessionCookie] = "planted"
	b.signIn(testKey)
	if b.cookies[sessionCookie] == "planted" {
		t.Error("a planted token is taken over")
	}
}

// A page view is not a write.
func TestPageViewsDoNotWriteSessions(t *testing.T) {
	t.Parallel()
	w := newWorld()
	b := signedIn(t, w)
	before := w.count("PutSession")
	for range 5 {
		b.get("/ui/callbacks").ok()
	}
	if puts := w.count("PutSession"); puts != before {
		t.Errorf("5 page views wrote the session %d times", puts-before)
	}
}

// Guesses are counted before the key is looked up, so that parallel ones do not all pass.
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
		told, slow := counted[http.StatusUnauthorized], counted[http.StatusTooManyRequests]
		if told > 10 || told+slow != len(statuses) {
			t.Errorf("answers by status: %v", counted)
		}
	})
}

// slowKeys knows no key, and takes its time to say so.
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

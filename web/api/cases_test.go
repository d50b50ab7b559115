package api_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// lookups notes which keys are looked up.
type lookups struct {
	*engine
	texts []string
}

func (l *lookups) Authenticate(_ context.Context, text string) (store.Key, error) {
	l.texts = append(l.texts, text)
	return store.Key{}, store.ErrNotFound
}

// Case 46. However much of a right key a guess has, the code goes one way: one look-up of the whole text, by
// its hash, and one answer. That no comparison on the way is by bytes, TestSecretsAreComparedInConstantTime
// of the house shows.
func TestGuessesTakeOneWay(t *testing.T) {
	t.Parallel()
	keys := &lookups{engine: &engine{}}
	o := optionsOf(keys.engine)
	o.Engine = keys
	f := newFaceOf(t, o)
	guesses := []string{
		adminKey[:1], adminKey[:len(adminKey)-1], adminKey + "x", "x" + adminKey[1:], "dk_", strings.Repeat("x", 9),
	}
	var first string
	for i, guess := range guesses {
		rec := f.do("GET", "/v1/callbacks", "", "Authorization", "Bearer "+guess)
		wantProblem(t, rec, 401, "unauthorized")
		if first == "" {
			first = rec.Body.String()
		}
		if rec.Body.String() != first || len(keys.texts) != i+1 || keys.texts[i] != guess {
			t.Errorf("%q: %s after looking up %q", guess, rec.Body, keys.texts)
		}
	}
}

// Case 56. A link or a picture on another page makes a browser ask with GET: that changes nothing. What names
// its actor does, apart from reading a secret, which the audit keeps.
func TestGETChangesNothing(t *testing.T) {
	t.Parallel()
	for _, r := range routes(t) {
		if r.Method != "GET" || slices.Contains([]string{"/v1/secret", "/v1/endpoints/:id/secret"}, r.Path) {
			continue
		}
		e := fullEngine()
		rec := newFace(t, e).do("GET", pathOf(r), "")
		if e.actor != (store.Actor{}) || len(e.subs) > 0 || rec.Code >= 500 {
			t.Errorf("%s: %d; the engine was asked for %q by %q", r.Path, rec.Code, e.given.call, e.actor.Name)
		}
	}
}

package storetest

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secret makes one of an owner and a use.
func (f *fixture) secret(owner, use string) store.Secret {
	id := f.id()
	s := store.Secret{
		ID: id, Project: project, Owner: owner, Use: use, KeyID: "key-" + id, Ciphertext: []byte("\x00\xff" + id),
		CreatedAt: f.now,
	}
	if use != "" {
		s.Label, s.Hosts = "label of "+use, []string{"shop.example", "*"}
	}
	return s
}

// addSecret adds one, and ends the one before it then.
func (f *fixture) addSecret(owner, use string, retireAt int64) store.Secret {
	s := f.secret(owner, use)
	f.ok(f.AddSecret(f.ctx(), s, retireAt, false, actor))
	return s
}

func (f *fixture) wantSecrets(owner string, now int64, want ...store.Secret) {
	same(f, "secrets of "+owner, want, must(f.OwnedSecrets(f.ctx(), project, owner, now)))
}

func testSecrets(f *fixture) {
	f.wantSecrets("", f.now)
	onlyIfNone := func(retireAt int64) error {
		return f.AddSecret(f.ctx(), f.secret("", ""), retireAt, true, actor)
	}
	f.winners(4, nil, func(int) error { return onlyIfNone(0) })
	same(f, "secrets after four started at once", 1, len(must(f.OwnedSecrets(f.ctx(), project, "", f.now))))
	first := f.addSecret("", "", f.now)
	f.ok(onlyIfNone(f.now))
	f.wantSecrets("", f.now, first)
	second := f.addSecret("", "", f.now+1000)
	first.RetiredAt = f.now + 1000
	f.wantSecrets("", f.now, second, first)
	f.wantSecrets("", f.now+1000, second)
	// A third one ends the first: no more than two sign.
	f.now += 500
	third := f.addSecret("", "", f.now+1000)
	second.RetiredAt = f.now + 1000
	f.wantSecrets("", f.now, third, second)
	none(f, "another project's secrets", must(f.OwnedSecrets(f.ctx(), "other", "", f.now)))
	same(f, "audit entries for four secrets", 4, len(f.newest(10)))
}

// testOwnedSecrets has secrets of the project, of a use, and of two endpoints side by side.
func testOwnedSecrets(f *fixture) {
	const hmac, rsa = "hmac", "rsa"
	one, two := f.id(), f.id()
	root, own := f.addSecret("", "", f.now), f.addSecret("", rsa, f.now)
	a, b := f.addSecret(one, hmac, f.now), f.addSecret(one, rsa, f.now)
	f.ok(f.AddSecret(f.ctx(), f.secret(one, rsa), f.now, true, actor))
	c := f.addSecret(two, hmac, f.now)
	others := func() {
		f.wantSecrets("", f.now, own, root)
		f.wantSecrets(two, f.now, c)
	}
	others()
	f.wantSecrets(one, f.now, b, a)
	f.wantSecrets(f.id(), f.now)
	// A rotation concerns its own owner and use alone, and at most two are valid.
	for range 3 {
		next := f.addSecret(one, hmac, f.now+60_000)
		a.RetiredAt = f.now + 60_000
		f.wantSecrets(one, f.now, next, b, a)
		a = next
		f.now++
	}
	others()
	f.now += 60_000
	f.wantSecrets(one, f.now, a, b)
}

// testReseal: rows take another master key a page at a time, and each page is audited.
func testReseal(f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		f.endpoint(func(e *store.Endpoint) {
			e.Headers = []store.Header{store.SealedHeader("X-Token", store.SealedText("old", name))}
		})
	}
	counted := func(what string, old, fresh int) {
		for key, want := range map[string]int{"old": old, "new": fresh} {
			same(f, what+": sealed with "+key, want, must(f.CountSealed(f.ctx(), store.SealedEndpoints, key, 2)))
		}
	}
	counted("up to two", 2, 0)
	page := must(f.Reseal(f.ctx(), store.SealedEndpoints, "old", "", 10, func(r *store.SealedRow) error {
		_, text, _ := store.CutSealed(r.Headers[0].Sealed())
		if text == "b" {
			return errRefused
		}
		r.KeyID, r.Headers[0] = "new", store.SealedHeader("X-Token", store.SealedText("new", text))
		return nil
	}, f.now, actor))
	f.check(page.Done == 2 && page.Failed == 1, "%+v", page)
	counted("after it", 1, 2)
	f.wantAudit("secret.reencrypt new")
	f.wantDifference("re-encrypted", `{"key_id":"old"}`, `{"key_id":"new"}`)
}

func testSessions(f *fixture) {
	put := func(s store.Session) { f.ok(f.PutSession(f.ctx(), s)) }
	want := func(want store.Session, now int64) {
		got := must(f.Session(f.ctx(), want.Token, now))
		f.check(got.Token == want.Token && string(got.Data) == string(want.Data) && got.ExpiresAt == want.ExpiresAt,
			"session: %+v, want %+v", got, want)
	}
	gone := func(token string, now int64) { f.missing(token, errOf(f.Session(f.ctx(), token, now))) }
	gone("one", f.now)
	one := store.Session{Token: "one", Data: []byte("\x00\xff{}"), ExpiresAt: f.now + 10}
	two := store.Session{Token: "two", ExpiresAt: f.now + 20}
	put(one)
	put(two)
	want(one, f.now+9)
	gone("one", f.now+10)
	want(two, f.now+10)
	one.Data, one.ExpiresAt = []byte("more"), f.now+30
	put(one)
	want(one, f.now+10)
	for range 2 {
		f.ok(f.DeleteSession(f.ctx(), "one"))
	}
	gone("one", f.now)
	put(one)
	for i := range 5 {
		put(store.Session{Token: fmt.Sprint(i), ExpiresAt: f.now + int64(i)})
	}
	for _, step := range []struct {
		now         int64
		limit, want int
	}{{f.now + 2, 2, 2}, {f.now + 2, 10, 1}, {f.now + 2, 10, 0}, {f.now + 20, 10, 3}} {
		same(f, "purged", step.want, must(f.PurgeSessions(f.ctx(), step.now, step.limit)))
	}
	gone("two", 0)
	want(one, f.now)
}

package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (f *fixture) secret(n int64, change func(*store.Secret)) store.Secret {
	s := store.Secret{ID: f.id(), Project: project, KeyID: fmt.Sprint("key-", n), Ciphertext: []byte{0, 0xff, byte(n)}, CreatedAt: f.now}
	if change != nil {
		change(&s)
	}
	return s
}

func (f *fixture) addSecret(s store.Secret, retireAt int64, onlyIfNone bool) {
	f.Helper()
	f.ok(f.AddSecret(f.ctx(), s, retireAt, onlyIfNone, actor))
}

func testSecrets(f *fixture) {
	want := func(now int64, secrets ...store.Secret) {
		f.Helper()
		same(f, "secrets", secrets, must(f.OwnedSecrets(f.ctx(), project, "", now)))
	}
	want(f.now)
	var wg sync.WaitGroup
	for i := range 4 {
		candidate := f.secret(int64(10+i), nil)
		wg.Go(func() {
			if err := f.AddSecret(f.ctx(), candidate, 0, true, actor); err != nil {
				f.Errorf("add secret: %v", err)
			}
		})
	}
	wg.Wait()
	if got, err := f.OwnedSecrets(f.ctx(), project, "", f.now); err != nil || len(got) != 1 {
		f.Fatalf("%d secrets after four started at once: %v", len(got), err)
	}
	first := f.secret(1, nil)
	f.addSecret(first, f.now, false)
	f.addSecret(f.secret(9, nil), f.now, true)
	want(f.now, first)
	second := f.secret(2, nil)
	f.addSecret(second, f.now+1000, false)
	first.RetiredAt = f.now + 1000
	want(f.now, second, first)
	want(f.now+1000, second)
	// A third one ends the first: no more than two sign.
	f.now += 500
	third := f.secret(3, nil)
	f.addSecret(third, f.now+1000, false)
	second.RetiredAt = f.now + 1000
	want(f.now, third, second)
	none(f, "another project's secrets", must(f.OwnedSecrets(f.ctx(), "other", "", f.now)))
	same(f, "audit entries for four secrets", 4, len(must(f.AuditEntries(f.ctx(), project, "", 10))))
}

// testOwnedSecrets has secrets of the project, of a use, and of two endpoints side by side.
func testOwnedSecrets(f *fixture) {
	const hmac, rsa = "hmac", "rsa"
	of := func(owner, use string) func(*store.Secret) {
		return func(s *store.Secret) {
			s.Owner, s.Use, s.Label, s.Hosts = owner, use, "label of "+use, []string{"shop.example", "*"}
		}
	}
	want := func(owner string, secrets ...store.Secret) {
		f.Helper()
		same(f, "secrets of "+owner, secrets, must(f.OwnedSecrets(f.ctx(), project, owner, f.now)))
	}
	one, two := f.id(), f.id()
	root := f.secret(1, nil)
	f.addSecret(root, f.now, false)
	own := f.secret(2, of("", rsa))
	f.addSecret(own, f.now, false)
	a := f.secret(3, of(one, hmac))
	f.addSecret(a, f.now, false)
	b := f.secret(4, of(one, rsa))
	f.addSecret(b, f.now, true)
	f.addSecret(f.secret(5, of(one, rsa)), f.now, true)
	c := f.secret(6, of(two, hmac))
	f.addSecret(c, f.now, false)
	want("", own, root)
	want(one, b, a)
	want(two, c)
	want(f.id())
	// A rotation concerns its own owner and use alone, and at most two are valid.
	for n := range 3 {
		next := f.secret(int64(10+n), of(one, hmac))
		f.addSecret(next, f.now+60_000, false)
		a.RetiredAt = f.now + 60_000
		want(one, next, b, a)
		a = next
		f.now++
	}
	want("", own, root)
	want(two, c)
	f.now += 60_000
	want(one, a, b)
}

// testReseal: rows take another master key a page at a time, and each page is audited.
func testReseal(f *fixture) {
	for _, name := range []string{"a", "b", "c"} {
		must(f.CreateEndpoint(f.ctx(), store.Endpoint{
			Project: project, ID: f.id(), Name: name, URL: "https://a.example/",
			Enabled: true, CreatedAt: f.now,
			Headers: []store.Header{store.SealedHeader("X-Token", store.SealedText("old", name))},
		}, actor))
	}
	count := func(key string) int { return must(f.CountSealed(f.ctx(), store.SealedEndpoints, key, 2)) }
	same(f, "counted up to two", []int{2, 0}, []int{count("old"), count("new")})
	page := must(f.Reseal(f.ctx(), store.SealedEndpoints, "old", "", 10, func(r *store.SealedRow) error {
		_, text, _ := store.CutSealed(r.Headers[0].Sealed())
		if text == "b" {
			return errors.New("it does not open")
		}
		r.KeyID, r.Headers[0] = "new", store.SealedHeader("X-Token", store.SealedText("new", text))
		return nil
	}, f.now, actor))
	if page.Done != 2 || page.Failed != 1 || count("old") != 1 || count("new") != 2 {
		f.Errorf("%+v, old %d, new %d", page, count("old"), count("new"))
	}
	f.wantAudit("secret.reencrypt new")
	f.wantDifference("re-encrypted", `{"key_id":"old"}`, `{"key_id":"new"}`)
}

func testSessions(f *fixture) {
	put := func(s store.Session) {
		f.Helper()
		f.ok(f.PutSession(f.ctx(), s))
	}
	want := func(token string, now int64, want *store.Session) {
		f.Helper()
		got, err := f.Session(f.ctx(), token, now)
		if want == nil {
			f.fails(store.ErrNotFound, "session that is none", err)
		} else if err != nil || got.Token != want.Token || !bytes.Equal(got.Data, want.Data) ||
			got.ExpiresAt != want.ExpiresAt {
			f.Errorf("session: %v, %+v, want %+v", err, got, *want)
		}
	}
	want("one", f.now, nil)
	one := store.Session{Token: "one", Data: []byte("\x00\xff{}"), ExpiresAt: f.now + 10}
	two := store.Session{Token: "two", ExpiresAt: f.now + 20}
	put(one)
	put(two)
	want("one", f.now+9, &one)
	want("one", f.now+10, nil)
	want("two", f.now+10, &two)
	one.Data, one.ExpiresAt = []byte("more"), f.now+30
	put(one)
	want("one", f.now+10, &one)
	for range 2 {
		f.ok(f.DeleteSession(f.ctx(), "one"))
	}
	want("one", f.now, nil)
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
	want("two", 0, nil)
	want("one", f.now, &one)
}

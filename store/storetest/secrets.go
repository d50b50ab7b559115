package storetest

import (
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

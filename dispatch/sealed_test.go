package dispatch_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	rules "github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// withKeys sets master keys, one for each letter, and reads templates as URLs.
func withKeys(letters string) tweak {
	return func(o *options) {
		var keys []string
		for _, b := range []byte(letters) {
			keys = append(keys, base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b},
				secret.MasterKeyBytes)))
		}
		o.Keyring = must(secret.NewKeyring(keys))
		o.ReadTemplate = func(raw []byte) (accept.Submission, error) {
			return accept.Submission{URL: strings.Trim(string(raw), `{}" `), Headers: credential("template"),
				Body: []byte("1")}, nil
		}
	}
}

func credential(value string) []store.Header {
	return []store.Header{{Name: "X-Token", Value: value}, {Name: "X-Shop", Value: "7"}}
}

// sealEverything stores an encrypted value in every table. It returns callbacks that are due in an hour: one
// with its own headers, one to an endpoint with a secret, and a poll.
func (b *fixture) sealEverything() []string {
	b.Helper()
	const url = "https://shop.example/"
	b.ok(b.patchProject(control.ProjectChange{Headers: new(credential("project"))}))
	ep := b.endpoint(control.EndpointChange{
		URLOverride: new("any"), Headers: new(credential("endpoint")),
		Choice: accept.Choice{Signer: "bearer"},
		Secret: "hunter2-hunter2",
	})
	must(b.engine.CreateAlert(b.Context(), project, rules.Change{Name: new("a"),
		When: &rules.When{Kind: "dead_rate"}, Sink: webhook()}, operator))
	template := []byte(`{"https://shop.example/"}`)
	s := must(b.engine.CreateSchedule(b.Context(), project,
		control.ScheduleChange{Name: new("s"), Cron: new("@yearly"), Template: template}, operator))
	b.is("the schedule's template", string(s.Template), string(template))
	poll := b.poll(accept.PollSubmission{
		Submission: accept.Submission{URL: url, Ref: "r", Headers: credential("poll"), Delay: new(time.Hour)},
		Until:      []byte(`{"success":[{"status":[200]}]}`),
		OnResult:   &accept.Submission{URL: url, Headers: credential("result")},
	})
	toEndpoint := in(time.Hour)
	toEndpoint.Endpoint = store.EndpointPrefix + ep.ID
	return []string{
		b.accept(accept.Submission{URL: url, Headers: credential("callback"), Delay: new(time.Hour)}).ID,
		b.accept(toEndpoint).ID,
		poll.ID,
	}
}

func (b *fixture) pollResult(id string) string {
	b.Helper()
	return must(b.engine.Poll(b.Context(), project, id)).Detail.ResultID
}

func (b *fixture) reencrypt(from string) (control.Reencryption, error) {
	return b.engine.Reencrypt(b.Context(), from, operator)
}

// Case 40: a keyring reads the rows of all its keys, and a re-encryption moves all rows to the first key.
// Without the old key no row can be decrypted, which CheckKeys finds by one row of each table.
func TestCase40ReencryptMovesAllRowsToTheFirstKey(t *testing.T) {
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		callbacks := b.sealEverything()
		unreadable := func(when string, want []store.SealedTable) {
			t.Helper()
			var tables []store.SealedTable
			for _, p := range must(b.engine.CheckKeys(b.Context())) {
				tables = append(tables, p.Table)
				b.fails(when, p.Err, secret.ErrUnknownKey)
			}
			b.is(when+" rows cannot be read of", tables, want)
		}
		unreadable("with the key that everything was made with", nil)
		b = b.restart(nil, withKeys("b"))
		unreadable("with another key", store.SealedTables())
		b = b.restart(nil, withKeys("ba"))
		unreadable("with both keys", nil)
		r := must(b.reencrypt(""))
		b.check(r.Done >= len(store.SealedTables()) && r.Failed == 0 && r.Left == 0 && r.Next == "",
			"re-encrypted: %+v", r)
		b.is("re-encrypted again", must(b.reencrypt("")).Done, 0)
		b = b.restart(nil, withKeys("b"))
		unreadable("with the new key alone", nil)
		for _, id := range callbacks {
			b.retryAt(id, "")
		}
		b.ends("succeeded", 10*time.Minute, callbacks...)
		b.ends("succeeded", 10*time.Minute, b.pollResult(callbacks[2]))
		b.is("health", b.health(), "ready")
	})
}

// A re-encryption takes several calls, each with a bounded number of rows, and continues at its cursor.
func TestReencryptTakesSeveralCalls(t *testing.T) {
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		b.backlog(3000, accept.Submission{Headers: credential("c"), Delay: new(time.Hour)})
		b = b.restart(nil, withKeys("ba"))
		done, steps := 0, 0
		for next, more := "", true; more; steps++ {
			r := must(b.reencrypt(next))
			done, next = done+r.Done, r.Next
			more = next != ""
			b.check(more == (r.Left > 0), "step %d: %+v", steps, r)
		}
		b.is("rows that were changed", done, 3000)
		between(b, "steps", steps, 2, 3000)
		// A cursor whose rows have been re-encrypted since is skipped.
		r := must(b.reencrypt("callbacks/00000000/"))
		b.check(r.Next == "" && r.Left == 0, "from a place that has nothing any more: %+v", r)
		_, err := b.reencrypt("attempts/1")
		b.check(len(b.wrongFields(err)) > 0, "a place that is none: %v", err)
	})
}

// A callback whose secrets cannot be decrypted is not sent. The health shows it, and the callback is sent
// once the key is back.
func TestUndecryptableSecretsDegrade(t *testing.T) {
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		callbacks := b.sealEverything()
		b = b.restart(nil, withKeys("b"))
		b.check(!strings.Contains(b.health(), "secrets"), "before anything was tried: %s", b.health())
		for _, id := range callbacks {
			b.retryAt(id, "")
		}
		time.Sleep(30 * time.Second)
		b.is("health after attempts that cannot be signed", b.health(), "ready secrets")
		b.sent(0, "without their secrets")
		b = b.restart(nil, withKeys("ba"))
		for _, id := range callbacks {
			b.ends("succeeded", 10*time.Minute, id)
			b.is("charged", b.get(id).AttemptCount, 1)
		}
	})
}

// A ciphertext that was moved to another row, or whose hosts were changed, cannot be decrypted.
func TestMovedCiphertextsAreNotDecrypted(t *testing.T) {
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		callbacks := b.sealEverything()
		b.retryAt(callbacks[2], "")
		b.ends("succeeded", 10*time.Minute, callbacks[2])
		var evil, moves []string
		for _, from := range []string{callbacks[0], b.pollResult(callbacks[2])} {
			id := b.accept(accept.Submission{URL: "https://evil.example/", Headers: credential("mine"),
				Delay: new(time.Hour)}).ID
			evil = append(evil, id)
			moves = append(moves, fmt.Sprintf(`UPDATE requests
				SET headers = (SELECT headers FROM requests WHERE id = '%s') WHERE id = '%s'`, from, id))
		}
		b.damage(append(moves, `UPDATE secrets SET hosts = '["evil.example"]' WHERE use = 'text'`)...)
		b = b.restart(nil, withKeys("a"))
		for _, id := range evil {
			b.retryAt(id, "")
		}
		b.retryAt(callbacks[1], "https://evil.example/")
		time.Sleep(time.Minute)
		b.sent(0, "with what was moved")
	})
}

// TestPatchesOfAProjectLoseNothing: two concurrent changes of different fields are both kept.
func TestPatchesOfAProjectLoseNothing(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		for i := range 30 {
			name, policy := fmt.Sprint("name ", i), []string{"short", "payment"}[i%2]
			var changing sync.WaitGroup
			for _, ch := range []control.ProjectChange{{Name: &name},
				{Choice: accept.Choice{PolicyName: policy}}} {
				changing.Go(func() { b.fails("patch", b.patchProject(ch), nil) })
			}
			changing.Wait()
			p := must(b.db.Project(b.Context(), project))
			b.is(fmt.Sprint("round ", i), []string{p.Name, p.Defaults.Policy.Name}, []string{name, policy})
		}
	})
}

// TestPatchKeepsNewMasterKey: a change of a project during a re-encryption does not restore the old
// ciphertexts.
func TestPatchKeepsNewMasterKey(t *testing.T) {
	with(nil, withKeys("a")).run(t, func(b *fixture) {
		b.ok(b.patchProject(control.ProjectChange{Headers: new(credential("x"))}))
		b = b.restart(nil, withKeys("ba"))
		// The catalog reads the project at the first use, and caches it.
		must(b.engine.Presets(b.Context(), project))
		time.Sleep(time.Minute)
		between := false
		reencrypt := func() {
			between = true
			must(b.reencrypt(""))
		}
		b.times(1, func(_ context.Context, c *call) error {
			err := c.do()
			reencrypt()
			return err
		}, "Project")
		b.ok(b.patchProject(control.ProjectChange{Name: new("renamed")}))
		if !between { // nothing was read before the change
			reencrypt()
		}
		rows := must(b.db.SealedKeys(b.Context(), 0))
		for _, row := range rows {
			b.check(row.Table != store.SealedProjects || row.KeyID == rows[0].KeyID,
				"the project is encrypted with %s, and %s with %s", row.KeyID, rows[0].Table, rows[0].KeyID)
		}
		r := must(b.reencrypt(""))
		b.is("more to encrypt after the change", r.Done+r.Left, 0)
	})
}

// The hash of a key is as valid as its text. A key that another process revoked is refused within five
// seconds, but not because SQL fails.
func TestKeyHashIsAsValidAsItsText(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		key, text, err := b.engine.CreateKey(b.Context(), project,
			control.KeyRequest{Name: "ui", Scopes: []string{"read"}}, operator)
		b.ok(err)
		hash := control.HashKey(text)
		byHash := func() error {
			got, err := b.engine.AuthenticateHash(b.Context(), hash)
			b.check(err != nil || got.ID == key.ID && got.Project == project, "got %+v", got)
			return err
		}
		b.fails("the hash", byHash(), nil)
		b.is("the text", must(b.engine.Authenticate(b.Context(), text)).ID, key.ID)
		b.is("times that the key was read: both know the same", b.count("KeyByHash"), 1)
		_, err = b.engine.AuthenticateHash(b.Context(), control.HashKey(text+"x"))
		b.fails("the hash of no key", err, store.ErrNotFound)
		time.Sleep(2 * time.Minute) // the last use is written
		b.check(must(b.db.KeyByHash(b.Context(), hash[:])).LastUsedAt > 0, "its use was not noted")
		b.set(fail(errDown), "KeyByHash") // it stays valid while SQL fails
		b.fails("while SQL is away", byHash(), nil)
		b.set(nil, "KeyByHash")
		b.fails("afterwards", byHash(), nil)
		b.ok(b.db.RevokeKey(b.Context(), project, key.ID, soon(0), operator)) // by another process
		time.Sleep(5*time.Second + time.Millisecond)
		b.fails("five seconds after it was revoked", byHash(), store.ErrNotFound)
	})
}

// A key that is revoked during its lookup is not cached as valid.
func TestKeyRevokedDuringLookupStaysRevoked(t *testing.T) {
	with(nil).run(t, func(b *fixture) {
		key, text, err := b.engine.CreateKey(b.Context(), project,
			control.KeyRequest{Name: "shop", Scopes: []string{"send"}}, operator)
		b.ok(err)
		b.times(1, func(_ context.Context, c *call) error {
			err := c.do()
			b.fails("revoke", b.engine.RevokeKey(b.Context(), project, key.ID, operator), nil)
			return err // it was valid when it was read
		}, "KeyByHash")
		_, _ = b.engine.Authenticate(b.Context(), text)
		_, err = b.engine.Authenticate(b.Context(), text)
		b.fails("a revoked key", err, store.ErrNotFound)
	})
}

// TestCursorKey: all processes share one key, which is encrypted in SQL. No caller can read or rotate it.
func TestCursorKey(t *testing.T) {
	with(nil, func(o *options) { o.Embedded = false }).run(t, func(b *fixture) {
		engines := []*fixture{b, b.join("two"), b.join("three"), b.join("four")}
		got := make([][]byte, 2*len(engines))
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				var err error
				got[i], err = engines[i/2].engine.CursorKey(b.Context())
				b.fails("key", err, nil)
			})
		}
		wg.Wait()
		for i, key := range got {
			b.check(len(key) == 32 && bytes.Equal(key, got[0]),
				"process %d has a key of %d bytes, which is not the first one's", i/2, len(key))
		}
		rows := must(b.db.OwnedSecrets(b.Context(), "", "", 0))
		b.check(len(rows) == 1 && rows[0].Use == "cursor" && !bytes.Contains(rows[0].Ciphertext, got[0]),
			"in SQL: %+v", rows)
		for _, of := range []string{"", project} {
			q := control.SecretQuery{Use: "cursor"}
			_, err := b.engine.RevealSecret(b.Context(), of, q, operator)
			b.check(len(b.wrongFields(err)) > 0, "shown in project %q: %v", of, err)
			_, _, err = b.engine.RotateSecret(b.Context(), of, q, control.Rotation{}, operator)
			b.check(len(b.wrongFields(err)) > 0, "rotated in project %q: %v", of, err)
		}
	})
}

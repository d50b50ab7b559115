package dispatch_test

import (
	"bytes"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// masterKey returns a master key, as it is written in the settings.
func masterKey(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, secret.MasterKeyBytes))
}

// withKeys gives an engine master keys, and templates that are addresses.
func withKeys(t *testing.T, keys ...string) tweak {
	t.Helper()
	ring, err := secret.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *dispatch.Options) {
		o.Keyring = ring
		o.ReadTemplate = func(raw []byte) (accept.Submission, error) {
			return accept.Submission{URL: strings.Trim(string(raw), `{}" `), Headers: credential("template"), Body: []byte("1")}, nil
		}
	}
}

func credential(value string) []store.Header {
	return []store.Header{{Name: "X-Token", Value: value}, {Name: "X-Shop", Value: "7"}}
}

// sealEverything stores something sealed in every table, and returns the callbacks, which are due in an hour.
func sealEverything(b *fixture) (callbacks []string) {
	b.t.Helper()
	ctx, hour := b.t.Context(), time.Hour
	b.must(b.engine.PatchProject(ctx, store.DefaultProject, control.ProjectChange{Headers: new(credential("project"))}, operator))
	url := "https://shop.example/"
	ep, err := b.engine.CreateEndpoint(ctx, store.DefaultProject, control.EndpointChange{
		URL: &url, URLOverride: new("any"), Headers: new(credential("endpoint")), Choice: accept.Choice{Signer: "bearer"},
		Secret: "hunter2-hunter2",
	}, operator)
	b.ok(err)
	template := []byte(`{"https://shop.example/"}`)
	name, cron := "s", "@yearly"
	s, err := b.engine.CreateSchedule(ctx, store.DefaultProject, control.ScheduleChange{Name: &name, Cron: &cron, Template: template}, operator)
	b.ok(err)
	if string(s.Template) != string(template) {
		b.t.Errorf("the schedule is answered with %q", s.Template)
	}
	receipt, err := b.engine.AcceptPoll(ctx, store.DefaultProject, accept.PollSubmission{
		Submission: accept.Submission{URL: url, Ref: "r", Headers: credential("poll"), Delay: &hour},
		Until:      []byte(`{"success":[{"status":[200]}]}`),
		OnResult:   &accept.Submission{URL: url, Headers: credential("result")},
	})
	b.ok(err)
	return []string{
		b.accept(accept.Submission{URL: url, Headers: credential("callback"), Delay: &hour}).ID,
		b.accept(accept.Submission{Endpoint: store.EndpointPrefix + ep.Endpoint.ID, Delay: &hour}).ID,
		receipt.Callback.ID,
	}
}

// Case 40: with a key ring old rows can be read, and a re-encryption moves all of them to its first key;
// without the old key nothing can be, and that is found out from one row of each table.
func TestCase40ReencryptMovesEverythingToTheFirstKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		callbacks := sealEverything(b)
		if problems, err := b.engine.CheckKeys(t.Context()); err != nil || len(problems) > 0 {
			t.Fatalf("the key that everything was made with: %v, %v", problems, err)
		}
		b.stop()

		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b')))
		problems, err := b.engine.CheckKeys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var tables []store.SealedTable
		for _, p := range problems {
			tables = append(tables, p.Table)
			if !errors.Is(p.Err, secret.ErrUnknownKey) {
				t.Errorf("%s: %v", p, p.Err)
			}
		}
		if !slices.Equal(tables, store.SealedTables()) {
			t.Errorf("with another key, rows of %v cannot be read, want one of each table", tables)
		}
		b.stop()

		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b'), masterKey('a')))
		if problems, err := b.engine.CheckKeys(t.Context()); err != nil || len(problems) > 0 {
			t.Fatalf("with both keys: %v, %v", problems, err)
		}
		r, err := b.engine.Reencrypt(t.Context(), "", operator)
		if err != nil || r.Done < len(store.SealedTables()) || r.Failed > 0 || r.Left > 0 || r.Next != "" {
			t.Errorf("re-encrypted: %+v, %v", r, err)
		}
		if again, err := b.engine.Reencrypt(t.Context(), "", operator); err != nil || again.Done > 0 {
			t.Errorf("again: %+v, %v", again, err)
		}
		b.stop()

		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b')))
		if problems, err := b.engine.CheckKeys(t.Context()); err != nil || len(problems) > 0 {
			t.Errorf("with the new key alone: %v, %v", problems, err)
		}
		for _, id := range callbacks {
			b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, control.RetryRequest{}, operator))
			b.succeeds(id)
		}
		detail, err := b.engine.Poll(t.Context(), store.DefaultProject, callbacks[2])
		if err != nil {
			t.Fatal(err)
		}
		b.succeeds(detail.Detail.ResultID)
		if h := b.engine.Health(t.Context()); slices.Contains(h.Degraded, "secrets") {
			t.Errorf("health: %+v", h)
		}
	})
}

// A re-encryption goes in steps, each of a bounded number of rows, and goes on where it was.
func TestReencryptGoesInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		hour := time.Hour
		subs := make([]accept.Submission, 1000)
		for i := range subs {
			subs[i] = accept.Submission{URL: "https://shop.example/", Body: []byte("1"), Headers: credential("c"), Delay: &hour}
		}
		for range 3 {
			b.must(b.engine.Accept(t.Context(), store.DefaultProject, subs))
		}
		b.stop()
		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b'), masterKey('a')))
		var r control.Reencryption
		done, steps := 0, 0
		for next, more := "", true; more; steps++ {
			var err error
			if r, err = b.engine.Reencrypt(t.Context(), next, operator); err != nil {
				t.Fatal(err)
			}
			done, next = done+r.Done, r.Next
			if more = next != ""; more && r.Left == 0 {
				t.Fatalf("step %d says that nothing is left, and goes on: %+v", steps, r)
			}
		}
		if steps < 2 || done != 3000 || r.Left != 0 {
			t.Errorf("%d steps changed %d rows, %d are left", steps, done, r.Left)
		}
		// A place whose rows have been re-encrypted meanwhile is passed over.
		if r, err := b.engine.Reencrypt(t.Context(), "callbacks/00000000/", operator); err != nil || r.Next != "" || r.Left != 0 {
			t.Errorf("from a place that has nothing any more: %+v, %v", r, err)
		}
		_, err := b.engine.Reencrypt(t.Context(), "attempts/1", operator)
		if _, ok := errors.AsType[*store.InvalidError](err); !ok {
			t.Errorf("a place that is none: %v", err)
		}
	})
}

// What cannot be decrypted is not sent without it, shows in the health, and goes on when the key is back.
func TestSecretsThatCannotBeOpenedDegrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		callbacks := sealEverything(b)
		b.stop()
		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b')))
		if h := b.engine.Health(t.Context()); slices.Contains(h.Degraded, "secrets") {
			t.Errorf("before anything was tried: %+v", h)
		}
		for _, id := range callbacks {
			b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, control.RetryRequest{}, operator))
		}
		time.Sleep(30 * time.Second)
		if h := b.engine.Health(t.Context()); !h.Ready || !slices.Contains(h.Degraded, "secrets") {
			t.Errorf("after attempts that cannot be signed: %+v", h)
		}
		if n := len(b.receiver.seen()); n > 0 {
			t.Errorf("%d requests were sent without their secrets", n)
		}
		b.stop()
		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('b'), masterKey('a')))
		for _, id := range callbacks {
			b.succeeds(id)
			if c := b.get(id); c.AttemptCount != 1 {
				t.Errorf("%s was charged %d attempts", id, c.AttemptCount)
			}
		}
	})
}

// A ciphertext that was moved to another row, or named for another host, opens nothing.
func TestMovedCiphertextsOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		callbacks := sealEverything(b)
		poll := callbacks[2]
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, poll, control.RetryRequest{}, operator))
		b.succeeds(poll)
		detail, err := b.engine.Poll(t.Context(), store.DefaultProject, poll)
		if err != nil {
			t.Fatal(err)
		}
		hour := time.Hour
		evil := func() string {
			return b.accept(accept.Submission{URL: "https://evil.example/", Headers: credential("mine"), Delay: &hour}).ID
		}
		copied := map[string]string{evil(): callbacks[0], evil(): detail.Detail.ResultID}
		b.stop()
		damage(t, path, func(db *sql.DB) error {
			for to, from := range copied {
				const copied = `UPDATE requests SET headers = (SELECT headers FROM requests WHERE id = $1)
					WHERE id = $2`
				if _, err := db.Exec(copied, from, to); err != nil {
					return err
				}
			}
			_, err := db.Exec(`UPDATE secrets SET hosts = '["evil.example"]' WHERE use = 'text'`)
			return err
		})
		b = startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
		for id := range copied {
			b.must(b.engine.Retry(t.Context(), store.DefaultProject, id, control.RetryRequest{}, operator))
		}
		b.must(b.engine.Retry(t.Context(), store.DefaultProject, callbacks[1], control.RetryRequest{URL: "https://evil.example/"}, operator))
		time.Sleep(time.Minute)
		if seen := b.receiver.seen(); len(seen) > 0 {
			t.Errorf("sent: %+v", seen)
		}
	})
}

// damage changes a database that no engine has open.
func damage(t *testing.T, path string, change func(*sql.DB) error) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err == nil {
		err = errors.Join(change(db), db.Close())
	}
	if err != nil {
		t.Fatal(fmt.Errorf("damage the database: %w", err))
	}
}

// succeeds awaits the success of a callback.
func (b *fixture) succeeds(id string) {
	b.t.Helper()
	if c := b.await(id, 10*time.Minute); c.State != store.Succeeded {
		b.t.Errorf("%s is %s (%s)", id, c.State, c.LastClass)
	}
}

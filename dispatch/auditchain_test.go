package dispatch_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// audited starts an engine, changes a lane so many times, and waits until all of it is chained.
func audited(t *testing.T, path string, changes int) *fixture {
	t.Helper()
	b := startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
	for i := range changes {
		b.must(b.engine.SetLane(t.Context(), store.DefaultProject, "lane", new(i+1), nil, operator))
	}
	awaitChain(b)
	return b
}

// awaitChain waits until no entry is unchained.
func awaitChain(b *fixture) {
	b.t.Helper()
	for range 10 {
		time.Sleep(time.Second)
		head, err := b.db.AuditHead(b.t.Context())
		b.ok(err)
		if head.Unchained == 0 {
			return
		}
	}
	b.t.Fatal("entries are not chained within ten seconds")
}

// tampered stops the engine, changes its database behind its back, and starts another one.
func tampered(t *testing.T, b *fixture, path string, statements ...string) *fixture {
	t.Helper()
	b.stop()
	damage(t, path, func(db *sql.DB) error {
		for _, statement := range statements {
			r, err := db.Exec(statement)
			if err != nil {
				return err
			}
			if n, err := r.RowsAffected(); n == 0 || err != nil {
				return fmt.Errorf("%s: %d rows, %w", statement, n, err)
			}
		}
		return nil
	})
	return startFixture(t, path, always(200, ""), withKeys(t, masterKey('a')))
}

// A tampering is a statement, and what it breaks; seq zero: wherever the chain ended.
type tampering struct {
	statement string
	fault     store.AuditFault
	seq       int64
}

// TestTamperedAuditIsFound: what a writer of SQL without the key changes, removes, moves or adds in the chain
// is found, with the number at which the chain breaks.
func TestTamperedAuditIsFound(t *testing.T) {
	const copied = `, project, at, actor, address, action, object, reason, before, after, detail, `
	cases := map[string]tampering{
		"removed":    {`DELETE FROM audit WHERE seq = 3`, store.AuditMissing, 3},
		"moved away": {`UPDATE audit SET seq = 99 WHERE seq = 3`, store.AuditMissing, 3},
		"exchanged": {`UPDATE audit SET seq = CASE seq WHEN 3 THEN -4 ELSE -3 END WHERE seq IN (3, 4);
			UPDATE audit SET seq = -seq WHERE seq < 0`, store.AuditChanged, 3},
		"hash": {`UPDATE audit SET hash = (SELECT hash FROM audit WHERE seq = 4)
			WHERE seq = 3`, store.AuditChanged, 3},
		"all removed":  {`DELETE FROM audit`, store.AuditCut, 1},
		"last removed": {`DELETE FROM audit WHERE seq = (SELECT seq FROM audit_head)`, store.AuditCut, 0},
		"inserted": {`UPDATE audit SET seq = -seq - 1 WHERE seq > 2;
			UPDATE audit SET seq = -seq WHERE seq < 0;
			UPDATE audit_head SET seq = seq + 1;
			INSERT INTO audit SELECT 'A' || id` + copied + `3, hash
			FROM audit WHERE seq = 2`, store.AuditChanged, 3},
		"added": {`INSERT INTO audit SELECT 'A' || id` + copied + `seq + 1, hash
			FROM audit ORDER BY seq DESC LIMIT 1`, store.AuditBeyond, 0},
		"added below the first": {`INSERT INTO audit SELECT 'A' || id` + copied + `-7, hash
			FROM audit WHERE seq = 2`, store.AuditChanged, -7},
		"head of another hash": {`UPDATE audit_head
			SET hash = (SELECT hash FROM audit WHERE seq = 1)`, store.AuditCut, 0},
		"head removed": {`DELETE FROM audit_head`, store.AuditBeyond, 1},
	}
	for _, column := range strings.Fields(
		`id project actor address action object reason before after detail`,
	) {
		statement := `UPDATE audit SET ` + column + ` = ` + column + ` || ' ' WHERE seq = 3`
		cases[column] = tampering{statement, store.AuditChanged, 3}
	}
	cases["at"] = tampering{`UPDATE audit SET at = at + 1 WHERE seq = 3`, store.AuditChanged, 3}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := databasePath(t)
				b := audited(t, path, 5)
				sound, err := b.engine.VerifyAudit(t.Context(), store.AuditLink{}, store.AuditLink{})
				if err != nil || sound.Broken != nil || sound.Next != nil || sound.Checked < 5 ||
					int64(sound.Checked) != sound.Head.Link.Seq {
					t.Fatalf("before: %+v, %v", sound, err)
				}
				b = tampered(t, b, path, c.statement)
				got, err := b.engine.VerifyAudit(t.Context(), store.AuditLink{}, store.AuditLink{})
				if err != nil || got.Broken == nil {
					t.Fatalf("found nothing: %+v, %v", got, err)
				}
				if got.Broken.Fault != c.fault || c.seq != 0 && got.Broken.Seq != c.seq {
					t.Errorf("found %+v, want %s at %d", got.Broken, c.fault, c.seq)
				}
			})
		})
	}
}

// TestACutAuditIsFoundByItsHead: entries that are removed from the end, with the head set back, leave a sound
// chain. Only a link that was kept elsewhere shows it.
func TestACutAuditIsFoundByItsHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := audited(t, path, 5)
		check := func(expect store.AuditLink) *store.AuditBreak {
			t.Helper()
			got, err := b.engine.VerifyAudit(t.Context(), store.AuditLink{}, expect)
			b.ok(err)
			return got.Broken
		}
		whole, err := b.engine.VerifyAudit(t.Context(), store.AuditLink{}, store.AuditLink{})
		b.ok(err)
		kept := whole.Head.Link
		if broken := check(kept); broken != nil {
			t.Errorf("with its own head: %+v", broken)
		}
		other := kept
		other.Hash = strings.Repeat("0", len(kept.Hash))
		if broken := check(other); broken == nil || broken.Fault != store.AuditUnexpected ||
			broken.Seq != kept.Seq {
			t.Errorf("with the head of another chain: %+v", broken)
		}
		b = tampered(t, b, path, `DELETE FROM audit WHERE seq > 3`,
			`UPDATE audit_head SET seq = 3, hash = (SELECT hash FROM audit WHERE seq = 3)`)
		if broken := check(store.AuditLink{}); broken != nil {
			t.Errorf("without a head that was kept: %+v", broken)
		}
		if broken := check(kept); broken == nil || broken.Fault != store.AuditCut || broken.Seq != 4 {
			t.Errorf("with the head that was kept: %+v", broken)
		}
		// What comes after goes on with a chain that does not have the kept link either.
		for i := range 10 {
			b.must(b.engine.SetLane(t.Context(), store.DefaultProject, "other", new(i+1), nil, operator))
		}
		awaitChain(b)
		if broken := check(kept); broken == nil || broken.Fault != store.AuditUnexpected {
			t.Errorf("with the head that was kept, and new entries: %+v", broken)
		}
	})
}

// TestALongAuditIsVerifiedInSteps: one call looks at 10,000 entries at most, and the next goes on after it,
// with bounded memory.
func TestALongAuditIsVerifiedInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := audited(t, path, 1)
		b = tampered(t, b, path, `WITH RECURSIVE n(i) AS (
				SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10500)
			INSERT INTO audit (id, project, at, actor, address, action, object, reason, before, after, detail)
			SELECT 'many-' || i, 'p', i, 'a', '', 'x', '', '', '', '', '' FROM n`)
		awaitChain(b)
		var at store.AuditLink
		checked := 0
		for steps := 1; ; steps++ {
			got, err := b.engine.VerifyAudit(t.Context(), at, store.AuditLink{})
			b.ok(err)
			if got.Broken != nil || steps > 2 {
				t.Fatalf("step %d: %+v", steps, got)
			}
			if checked += got.Checked; got.Next == nil {
				if steps != 2 || int64(checked) != got.Head.Link.Seq {
					t.Errorf("%d of %d in %d steps", checked, got.Head.Link.Seq, steps)
				}
				return
			}
			at = *got.Next
		}
	})
}

// TestWhatACrashLeftUnchainedIsChained by the next process: entries are committed with what they record, and
// need no more.
func TestWhatACrashLeftUnchainedIsChained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := databasePath(t)
		b := audited(t, path, 3)
		before, err := b.db.AuditHead(t.Context())
		b.ok(err)
		// As a process leaves it that is killed between two statements: some entries that are committed, none
		// of them chained.
		b = tampered(t, b, path, `INSERT INTO audit
				(id, project, at, actor, address, action, object, reason, before, after, detail)
			SELECT 'left-' || id, project, at, actor, address, action, object, reason, before, after, detail
			FROM audit`)
		awaitChain(b)
		got, err := b.engine.VerifyAudit(t.Context(), before.Link, before.Link)
		b.ok(err)
		if got.Broken != nil || int64(got.Checked) != before.Link.Seq {
			t.Errorf("chained after %d: %+v", before.Link.Seq, got)
		}
	})
}

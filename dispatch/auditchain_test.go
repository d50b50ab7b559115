package dispatch_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// audited is an engine that has changed a lane so many times, all of which is chained.
func audited(t *testing.T, changes int, test func(b *fixture)) {
	t.Helper()
	with(nil).run(t, func(b *fixture) {
		for i := range changes {
			b.setLane("lane", i+1)
		}
		b.awaitChain()
		test(b)
	})
}

// awaitChain waits until no entry is unchained, and returns the chain's last link.
func (b *fixture) awaitChain() store.AuditLink {
	b.Helper()
	for range 10 {
		time.Sleep(time.Second)
		if head := must(b.db.AuditHead(b.Context())); head.Unchained == 0 {
			return head.Link
		}
	}
	b.Fatal("entries are not chained within ten seconds")
	return store.AuditLink{}
}

// tampered changes the database behind the engine's back, and starts another one.
func (b *fixture) tampered(statements ...string) *fixture {
	b.Helper()
	b.damage(statements...)
	return b.restart(nil)
}

// verifyAudit checks the chain after a link, and that it has the other one.
func (b *fixture) verifyAudit(after, expect store.AuditLink) control.AuditCheck {
	b.Helper()
	return must(b.engine.VerifyAudit(b.Context(), after, expect))
}

// breaks checks where the chain is broken; an empty fault: nowhere, zero: at any place.
func (b *fixture) breaks(what string, expect store.AuditLink, fault store.AuditFault, seq int64) {
	b.Helper()
	got := store.AuditBreak{}
	if broken := b.verifyAudit(store.AuditLink{}, expect).Broken; broken != nil {
		got = *broken
	}
	b.check(got.Fault == fault && (seq == 0 || got.Seq == seq), "%s: found %+v, want %q at %d", what, got,
		fault, seq)
}

// TestTamperedAuditIsFound: what a writer of SQL without the key changes, removes, moves or adds in the chain
// is found, with the number at which the chain breaks.
func TestTamperedAuditIsFound(t *testing.T) {
	// A tampering is a statement, and what it breaks; seq zero: wherever the chain ended.
	type tampering struct {
		statement string
		fault     store.AuditFault
		seq       int64
	}
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
		"at":           {`UPDATE audit SET at = at + 1 WHERE seq = 3`, store.AuditChanged, 3},
	}
	for _, column := range strings.Fields(
		`id project actor address action object reason before after detail`,
	) {
		statement := `UPDATE audit SET ` + column + ` = ` + column + ` || ' ' WHERE seq = 3`
		cases[column] = tampering{statement, store.AuditChanged, 3}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			audited(t, 5, func(b *fixture) {
				sound := b.verifyAudit(store.AuditLink{}, store.AuditLink{})
				b.check(sound.Broken == nil && sound.Next == nil && sound.Checked >= 5 &&
					int64(sound.Checked) == sound.Head.Link.Seq, "before: %+v", sound)
				b.tampered(c.statement).breaks("tampered", store.AuditLink{}, c.fault, c.seq)
			})
		})
	}
}

// TestACutAuditIsFoundByItsHead: entries that are removed from the end, with the head set back, leave a sound
// chain. Only a link that was kept elsewhere shows it.
func TestACutAuditIsFoundByItsHead(t *testing.T) {
	audited(t, 5, func(b *fixture) {
		kept := b.awaitChain()
		b.breaks("with its own head", kept, "", 0)
		other := kept
		other.Hash = strings.Repeat("0", len(kept.Hash))
		b.breaks("with the head of another chain", other, store.AuditUnexpected, kept.Seq)
		b = b.tampered(`DELETE FROM audit WHERE seq > 3`,
			`UPDATE audit_head SET seq = 3, hash = (SELECT hash FROM audit WHERE seq = 3)`)
		b.breaks("without a head that was kept", store.AuditLink{}, "", 0)
		b.breaks("with the head that was kept", kept, store.AuditCut, 4)
		// What comes after goes on with a chain that does not have the kept link either.
		for i := range 10 {
			b.setLane("other", i+1)
		}
		b.awaitChain()
		b.breaks("with the head that was kept, and new entries", kept, store.AuditUnexpected, 0)
	})
}

// TestALongAuditIsVerifiedInSteps: one call looks at 10,000 entries at most, and the next goes on after it,
// with bounded memory.
func TestALongAuditIsVerifiedInSteps(t *testing.T) {
	audited(t, 1, func(b *fixture) {
		b = b.tampered(`WITH RECURSIVE n(i) AS (
				SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10500)
			INSERT INTO audit (id, project, at, actor, address, action, object, reason, before, after, detail)
			SELECT 'many-' || i, 'p', i, 'a', '', 'x', '', '', '', '', '' FROM n`)
		last := b.awaitChain()
		first := b.verifyAudit(store.AuditLink{}, store.AuditLink{})
		b.check(first.Broken == nil && first.Next != nil, "first step: %+v", first)
		rest := b.verifyAudit(*first.Next, store.AuditLink{})
		b.check(rest.Broken == nil && rest.Next == nil && int64(first.Checked+rest.Checked) == last.Seq,
			"second step of %d: %+v", last.Seq, rest)
	})
}

// TestWhatACrashLeftUnchainedIsChained by the next process: entries are committed with what they record, and
// need no more.
func TestWhatACrashLeftUnchainedIsChained(t *testing.T) {
	audited(t, 3, func(b *fixture) {
		before := b.awaitChain()
		// As a process leaves it that is killed between two statements: some entries that are committed, none
		// of them chained.
		b = b.tampered(`INSERT INTO audit
				(id, project, at, actor, address, action, object, reason, before, after, detail)
			SELECT 'left-' || id, project, at, actor, address, action, object, reason, before, after, detail
			FROM audit`)
		b.awaitChain()
		got := b.verifyAudit(before, before)
		b.check(got.Broken == nil && int64(got.Checked) == before.Seq, "chained after %d: %+v", before.Seq,
			got)
	})
}

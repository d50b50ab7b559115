package control

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	ChainSpec = "@every 1s"
	// headLogEvery is how often the head of the chain is logged at most.
	headLogEvery = time.Minute
	// verifyAuditPage is how many entries are read at once, and verifyAuditPages how often one call reads.
	verifyAuditPage  = 500
	verifyAuditPages = 20
)

// An auditHead is the last link that this process has written, and the one that it has logged last.
type auditHead struct {
	written, logged store.AuditLink
	loggedAt        time.Time
}

// ChainAudit chains what was audited since, and logs the head, so that a log that is kept elsewhere proves
// how far the chain had come.
func (ct *Controller) ChainAudit(ctx context.Context) error {
	head, n, err := ct.o.Store.ChainAudit(ctx, ct.secret.AuditKey)
	if err != nil {
		return err
	}
	h := &ct.auditHead
	if n > 0 {
		h.written = head
	}
	if h.written != h.logged && time.Since(h.loggedAt) >= headLogEvery {
		h.logged, h.loggedAt = h.written, time.Now()
		ct.log.Info("audit chained", "head", h.logged.String())
	}
	return nil
}

// An AuditCheck is what one step of checking the audit has found.
type AuditCheck struct {
	// Checked is how many entries were looked at.
	Checked int
	// Broken is the first entry that does not fit; nil: all do.
	Broken *store.AuditBreak
	// Next is where the next step goes on; nil: this one has come to the end, or to what is broken.
	Next *store.AuditLink
	Head store.AuditHead
}

// VerifyAudit checks at most 10,000 entries of the chain from a link on. from is a link that an earlier call
// has returned, or the zero one. A chain that does not have the expected link is broken; the zero one is in
// every chain.
func (ct *Controller) VerifyAudit(ctx context.Context, from, expect store.AuditLink) (AuditCheck, error) {
	var c AuditCheck
	key, err := ct.secret.AuditKey(ctx)
	if err == nil {
		c.Head, err = ct.o.Store.AuditHead(ctx)
	}
	if err != nil {
		return c, fmt.Errorf("verify audit: %w", err)
	}
	end := c.Head.Link
	for pages := 0; from.Seq < end.Seq; pages++ {
		if pages == verifyAuditPages {
			c.Next = &from
			return c, nil
		}
		after := from.Seq
		if after == 0 {
			after = math.MinInt64 // numbers below the first one are none of the chain
		}
		entries, err := ct.o.Store.ChainedAudit(ctx, after, end.Seq, verifyAuditPage)
		if err != nil {
			return c, fmt.Errorf("verify audit: %w", err)
		}
		sound := 0
		from, sound, c.Broken = checkAudit(key, from, expect, entries)
		c.Checked += sound
		if c.Broken != nil {
			return c, nil
		}
	}
	switch {
	case from.Seq > end.Seq:
		c.Broken = &store.AuditBreak{Fault: store.AuditCut, Seq: end.Seq + 1}
	case from != end:
		c.Broken = &store.AuditBreak{Fault: store.AuditCut, Seq: end.Seq}
	case c.Head.Last > end.Seq:
		c.Broken = &store.AuditBreak{Fault: store.AuditBeyond, Seq: end.Seq + 1}
	case expect.Seq > end.Seq:
		c.Broken = &store.AuditBreak{Fault: store.AuditCut, Seq: end.Seq + 1}
	}
	return c, nil
}

// checkAudit checks a page of entries that goes on after from, and whether the expected link is among them.
// It returns the last link that fits, and how many do.
func checkAudit(
	key []byte, from, expect store.AuditLink, entries []store.AuditEntry,
) (last store.AuditLink, sound int, broken *store.AuditBreak) {
	if len(entries) == 0 {
		return from, 0, &store.AuditBreak{Fault: store.AuditCut, Seq: from.Seq + 1}
	}
	last, broken = store.CheckAudit(key, from, entries)
	sound = int(last.Seq - from.Seq)
	for i, e := range entries[:sound] {
		if e.Link.Seq == expect.Seq && e.Link != expect {
			return last, i, &store.AuditBreak{Fault: store.AuditUnexpected, Seq: e.Link.Seq, ID: e.ID}
		}
	}
	return last, sound, broken
}

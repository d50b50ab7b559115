package control

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

const (
	// ChainSpec is the cron spec of ChainAudit.
	ChainSpec = "@every 1s"
	// headLogEvery is the least time between two log lines with the head of the chain.
	headLogEvery = time.Minute
	// verifyAuditPage is how many entries one query reads, verifyAuditPages how many queries one call makes.
	verifyAuditPage  = 500
	verifyAuditPages = 20
)

// An auditHead is the last link of the chain that this process wrote, and the last one that it logged.
type auditHead struct {
	written, logged store.AuditLink
	loggedAt        time.Time
}

// ChainAudit appends new audit entries to the hash chain, and logs the head at most once a minute. A log that
// is kept elsewhere then proves how far the chain reached.
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

// An AuditCheck is the result of one step of a verification.
type AuditCheck struct {
	// Checked is the number of entries that fit.
	Checked int
	// Broken is the first entry that does not fit; nil: all fit.
	Broken *store.AuditBreak
	// Next is the link that the next step continues from; nil: this step reached the end, or Broken is set.
	Next *store.AuditLink
	Head store.AuditHead
}

// VerifyAudit checks at most 10,000 entries of the audit chain. from is a Next of an earlier call, or the
// zero link to begin. expect is a head that the caller kept: a chain without it is broken. The zero link is
// part of every chain.
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
			after = math.MinInt64 // an entry with a number below 1 does not belong to the chain
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

// checkAudit checks the entries that follow the link from, and that the link expect is among them if its
// number is. It returns the last link that fits and the number of entries that fit.
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

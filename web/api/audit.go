package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// audit is GET /v1/audit: every mutation but accepts, newest first.
func (a *API) audit() handler {
	ask := plain(func(ctx context.Context, who caller, after store.Cursor, limit int) ([]store.AuditEntry, error) {
		return a.Store.AuditEntries(ctx, who.Project, after.ID, limit)
	})
	at := func(e *store.AuditEntry) store.Cursor { return store.Cursor{ID: e.ID} }
	return listOf(a, query.ListAudit, ask, at, func(e *store.AuditEntry) client.AuditEntry {
		return client.AuditEntry{
			ID: e.ID, At: moment(e.At), Actor: e.Actor, Action: e.Action, Address: e.Address, Object: e.Object,
			Reason: e.Reason, Before: kept(e.Before), After: kept(e.After), Detail: kept(e.Detail),
			Sequence: e.Link.Seq, Hash: e.Link.Hash,
		}
	})
}

// verifyAudit is GET /v1/audit/verify: one step of checking the chain, which is of all projects.
func (a *API) verifyAudit(ctx context.Context, c *gin.Context, _ caller) error {
	q, err := parseQuery(c)
	if err != nil {
		return err
	}
	from, expect := auditLink(q, "from"), auditLink(q, "expect")
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, func(check *control.AuditCheck) client.AuditCheck {
		out := client.AuditCheck{
			Sound: check.Broken == nil, Checked: check.Checked, Head: check.Head.Link.String(),
			Unchained: check.Head.Unchained,
		}
		if b := check.Broken; b != nil {
			out.Broken = &client.AuditFault{Fault: string(b.Fault), Sequence: b.Seq, ID: b.ID}
		}
		if check.Next != nil {
			out.Next = check.Next.String()
		}
		return out
	})(a.Engine.VerifyAudit(ctx, from, expect))
}

// auditLink reads a parameter that is a link as the server has written it; without it, the zero link.
func auditLink(q *query.Values, name string) store.AuditLink {
	text := q.One(name)
	if text == "" {
		return store.AuditLink{}
	}
	link, err := store.ParseAuditLink(text)
	if err != nil {
		q.Add(name, err.Error())
	}
	return link
}

package api

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// audit is GET /v1/audit: every mutation but accepts, newest first.
func (a *API) audit(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	limit, after := q.Page(query.ListAudit)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	if after == nil {
		after = &store.Cursor{}
	}
	entries, err := a.Store.AuditEntries(ctx, who.Project, after.ID, limit+1)
	if err != nil {
		return err
	}
	next := ""
	if len(entries) > limit {
		entries = entries[:limit]
		next = q.Cursors.Encode(query.ListAudit, store.Cursor{ID: entries[limit-1].ID})
	}
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range entries {
		o.element(i)
		o.auditEntry(&entries[i])
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// auditEntry writes the members of an entry. What should be JSON and is not, which only a damaged row can
// have, is shown as text.
func (o *jsonObject) auditEntry(e *store.AuditEntry) {
	o.str("id", e.ID)
	o.instant("at", e.At)
	o.str("actor", e.Actor)
	o.str("action", e.Action)
	o.orNull("address", e.Address)
	o.orNull("object", e.Object)
	o.orNull("reason", e.Reason)
	o.rawOrNull("before", e.Before)
	o.rawOrNull("after", e.After)
	o.rawOrNull("detail", e.Detail)
	o.intOrNull("sequence", int(e.Link.Seq))
	o.orNull("hash", e.Link.Hash)
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
	check, err := a.Engine.VerifyAudit(ctx, from, expect)
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.boolean("sound", check.Broken == nil)
	o.integer("checked", int64(check.Checked))
	if b := check.Broken; b == nil {
		o.orNull("broken", "")
	} else {
		o.open("broken")
		o.str("fault", string(b.Fault))
		o.integer("sequence", b.Seq)
		o.orNull("id", b.ID)
		o.close()
	}
	next := ""
	if check.Next != nil {
		next = check.Next.String()
	}
	o.orNull("next", next)
	o.str("head", check.Head.Link.String())
	o.integer("unchained", int64(check.Head.Unchained))
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
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

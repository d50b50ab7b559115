package api

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// maxScopes is the most scopes of a request that are decoded; there are fewer.
const maxScopes = 10

// query.ListKeys is GET /v1/keys.
func (a *API) listKeys(ctx context.Context, c *gin.Context, who caller) error {
	q, err := a.listQuery(ctx, c, who)
	if err != nil {
		return err
	}
	limit, after := q.Page(query.ListKeys)
	q.Unknown()
	if err := q.Err(); err != nil {
		return err
	}
	keys, err := a.Engine.Keys(ctx, who.Project)
	if err != nil {
		return err
	}
	at := func(k *store.Key) store.Cursor { return store.Cursor{ID: k.ID} }
	newestFirst := func(a, b store.Cursor) int { return strings.Compare(b.ID, a.ID) }
	page, next := query.PageOf(q.Cursors, query.ListKeys, keys, limit, after, at, newestFirst)
	o := jsonObject{[]byte(`{"data":[`)}
	for i := range page {
		o.element(i)
		o.apiKey(&page[i])
		o.close()
	}
	a.answer(c, http.StatusOK, appendNext(o.b, next))
	return nil
}

// createKey is POST /v1/keys: 201 with the key and, this once, its text.
func (a *API) createKey(ctx context.Context, c *gin.Context, who caller) error {
	var (
		f      fields
		r      control.KeyRequest
		reason string
	)
	if err := readObject(c, false, &f, func(key, value []byte) bool {
		switch string(key) {
		case "name":
			f.text("name", value, &r.Name)
		case "scopes":
			f.lines("scopes", value, maxScopes, &r.Scopes)
		case "expires_in":
			f.duration("expires_in", value, &r.ExpiresIn)
		default:
			return f.reason(key, value, &reason)
		}
		return true
	}); err != nil {
		return err
	}
	r.Invalid = f.invalid
	k, text, err := a.Engine.CreateKey(ctx, who.Project, r, who.By(reason))
	if err != nil {
		return err
	}
	o := jsonObject{[]byte("{")}
	o.apiKey(&k)
	o.str("key", text)
	o.close()
	a.answer(c, http.StatusCreated, o.b)
	return nil
}

// revokeKey is DELETE /v1/keys/{id}: 200 with the key, which stays in the list as one that has ended.
func (a *API) revokeKey(ctx context.Context, c *gin.Context, who caller) error {
	id, err := paramOf(c, store.KeyPrefix)
	if err != nil {
		return err
	}
	reason, err := readReason(c)
	if err != nil {
		return err
	}
	if err := a.Engine.RevokeKey(ctx, who.Project, id, who.By(reason)); err != nil {
		return err
	}
	keys, err := a.Engine.Keys(ctx, who.Project)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(keys, func(k store.Key) bool { return k.ID == id })
	if i < 0 {
		return store.ErrNotFound
	}
	o := jsonObject{[]byte("{")}
	o.apiKey(&keys[i])
	o.close()
	a.answer(c, http.StatusOK, o.b)
	return nil
}

// apiKey writes the members of a key, of whose text only the end is known.
func (o *jsonObject) apiKey(k *store.Key) {
	o.id("id", store.KeyPrefix, k.ID)
	o.str("project", k.Project)
	o.str("name", k.Name)
	scopes := make([]string, len(k.Scopes))
	for i, s := range k.Scopes {
		scopes[i] = string(s)
	}
	o.texts("scopes", scopes)
	o.str("hint", k.Hint)
	o.instant("created_at", k.CreatedAt)
	o.instant("expires_at", k.ExpiresAt)
	o.instant("revoked_at", k.RevokedAt)
	o.instant("last_used_at", k.LastUsedAt)
}

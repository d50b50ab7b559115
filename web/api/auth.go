package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/httperr"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// A caller is the identity of a request, as its key says.
type caller = query.Caller

// missingScope is the error for a key without a scope.
func missingScope(s store.Scope) error {
	return fmt.Errorf("%w: use a key with the scope %s", httperr.ErrForbidden, s)
}

// adminKeyRequired is the error for calls that require the admin key of the settings.
func adminKeyRequired() error {
	return fmt.Errorf("%w: only the admin key of the settings can do this", httperr.ErrForbidden)
}

// authenticate returns the owner of the request's key, and the project that the request is for. It applies
// the limits on guessed keys and on the rate of each key.
func (a *API) authenticate(ctx context.Context, c *gin.Context) (caller, error) {
	const scheme = "Bearer "
	h := c.Request.Header.Get("Authorization")
	if len(h) <= len(scheme) || !strings.EqualFold(h[:len(scheme)], scheme) {
		return caller{}, httperr.ErrUnauthorized
	}
	text := h[len(scheme):]
	var who caller
	from := addressOf(c)
	right, wait, err := a.Guesses.Try(from, text, func(hash [sha256.Size]byte) (right bool, err error) {
		who, right, err = a.holder(ctx, text, hash)
		return right, err
	})
	who.Address = from
	switch {
	case err != nil:
		return caller{}, fmt.Errorf("authenticate: %w", err)
	case wait > 0:
		return caller{}, httperr.Later(httperr.ErrGuesses, wait)
	case !right:
		return caller{}, httperr.ErrUnauthorized
	}
	if wait := a.rates.Take(who.KeyID()); wait > 0 {
		return caller{}, httperr.Later(httperr.ErrRate, wait)
	}
	named := c.Request.Header[client.ProjectHeader]
	if who.Root() {
		who.Project, err = a.actsFor(ctx, named)
		return who, err
	}
	if slices.ContainsFunc(named, func(project string) bool { return project != who.Project }) {
		return caller{}, store.ErrNotFound // the key must not learn whether the other project exists
	}
	return who, nil
}

// addressOf returns the client's address, or the zero address if it is unknown. It asks gin for the client's
// IP only if a proxy has set X-Forwarded-For; reading the connection's address is cheaper.
func addressOf(c *gin.Context) netip.Addr {
	h := c.Request.Header
	if len(h["X-Forwarded-For"]) == 0 {
		if from, err := netip.ParseAddrPort(c.Request.RemoteAddr); err == nil {
			return from.Addr()
		}
	}
	from, _ := netip.ParseAddr(c.ClientIP()) // the zero address on an error
	return from
}

// holder returns the owner of a key; the caller of the admin key has no project yet. The admin key is
// compared by its hash and in constant time, so that timing reveals neither its text nor its length. Other
// keys are found by their hash.
func (a *API) holder(
	ctx context.Context, text string, hash [sha256.Size]byte,
) (who caller, right bool, err error) {
	if subtle.ConstantTimeCompare(hash[:], a.keyHash[:]) == 1 {
		return caller{}, true, nil
	}
	key, err := a.Engine.Authenticate(ctx, text)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return caller{}, false, nil
	case err != nil:
		return caller{}, false, err
	}
	return caller{Project: key.Project, Key: &key}, true, nil
}

// actsFor returns the project of a request with the admin key. named are the values of ProjectHeader.
func (a *API) actsFor(ctx context.Context, named []string) (string, error) {
	if len(named) == 0 {
		return store.DefaultProject, nil
	}
	project := named[0]
	if _, known := a.projects.Load(project); known && len(named) == 1 {
		return project, nil
	}
	if wrong := query.CheckText(project, false); wrong != "" || len(named) > 1 {
		return "", store.ErrNotFound
	}
	if _, err := a.Store.Project(ctx, project); err != nil {
		return "", fmt.Errorf("read the project of %s: %w", client.ProjectHeader, err)
	}
	a.projects.Store(project, nil)
	return project, nil
}

package query

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Caller is the identity of a request, as its key says.
type Caller struct {
	Project string
	// Key is nil for the admin key of the settings, which has every permission in every project.
	Key *store.Key
	// Address is the client's address. The zero address: unknown.
	Address netip.Addr
}

// Root reports whether the caller has the admin key of the settings.
func (c Caller) Root() bool { return c.Key == nil }

// OfEndpoint reports whether the caller has a key of one endpoint. It reaches nothing but the callbacks of
// the endpoint: see Merchant.
func (c Caller) OfEndpoint() bool { return c.Key != nil && c.Key.EndpointID != "" }

// Allows reports whether the caller's key has a scope in its whole project.
func (c Caller) Allows(s store.Scope) bool { return c.Key == nil || c.Key.Allows(s) }

// By returns the caller as the audit log names it. The name includes the id, because two keys may have the
// same name.
func (c Caller) By(reason string) store.Actor {
	by := store.Actor{Name: "admin key", Reason: reason}
	if c.Key != nil {
		by.Name = fmt.Sprintf("%s (%s%s)", c.Key.Name, store.KeyPrefix, c.Key.ID)
	}
	if c.Address.IsValid() {
		by.Address = c.Address.Unmap().String()
	}
	return by
}

// KeyID returns the id of the caller's key, empty for the admin key of the settings.
func (c Caller) KeyID() string {
	if c.Key == nil {
		return ""
	}
	return c.Key.ID
}

// HTTPS reports whether a public URL has the scheme https.
func HTTPS(publicURL string) bool {
	u, err := url.Parse(publicURL)
	return err == nil && u.Scheme == "https"
}

// ExtendDeadlines replaces the server's read and write timeouts for one request. The read deadline matters
// too: when it passes, net/http cancels the request's context, even if the body was read before.
func ExtendDeadlines(w http.ResponseWriter, until time.Time) error {
	rc := http.NewResponseController(w)
	for _, set := range []func(time.Time) error{rc.SetReadDeadline, rc.SetWriteDeadline} {
		if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("extend the deadlines: %w", err)
		}
	}
	return nil
}

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

// A Caller is who makes a request, as the key says.
type Caller struct {
	Project string
	// Key is nil for the settings' admin key, which may do everything in every project.
	Key *store.Key
	// Address is where the request came from; the zero address: not known.
	Address netip.Addr
}

// Root says whether the caller holds the settings' admin key.
func (c Caller) Root() bool { return c.Key == nil }

// Allows says whether the caller's key has a scope.
func (c Caller) Allows(s store.Scope) bool { return c.Key == nil || c.Key.Allows(s) }

// By returns the caller as the audit names it, with the id: two keys may have the same name.
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

// KeyID is the id of the caller's key, empty for the settings' admin key.
func (c Caller) KeyID() string {
	if c.Key == nil {
		return ""
	}
	return c.Key.ID
}

// HTTPS says whether a public URL has browsers come over https. An empty one does not.
func HTTPS(publicURL string) bool {
	u, err := url.Parse(publicURL)
	return err == nil && u.Scheme == "https"
}

// Lift puts the server's time-outs of one request off. The read deadline is one of them: when it passes
// net/http ends the request's context, even if the body was read long ago.
func Lift(w http.ResponseWriter, until time.Time) error {
	rc := http.NewResponseController(w)
	for _, set := range []func(time.Time) error{rc.SetReadDeadline, rc.SetWriteDeadline} {
		if err := set(until); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return fmt.Errorf("lift the time-outs: %w", err)
		}
	}
	return nil
}

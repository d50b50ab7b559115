package query

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A Caller is the identity of a request, as its key or the person's sign-in says.
type Caller struct {
	Project string
	// Person is the person who has signed in without a key. Nil: the caller has a key.
	Person *Person
	// Key is nil for a person and for the admin key of the settings, which has every permission in every
	// project.
	Key *store.Key
	// Address is the client's address. The zero address: unknown.
	Address netip.Addr
}

// A Person is an account of the identity provider.
type Person struct {
	// Subject identifies the account. Name is for display.
	Subject, Name string
	// Scopes are the person's scopes in the caller's project. Root gives the rights of the admin key.
	Scopes []store.Scope
	Root   bool
}

// OfEndpoint reports whether the caller has a key of one endpoint. It reaches nothing but the callbacks of
// the endpoint: see Merchant.
func (c Caller) OfEndpoint() bool { return c.Key != nil && c.Key.EndpointID != "" }

// PersonPrefix begins the id of a person in texts. The rest is the escaped subject.
const PersonPrefix = "oidc:"

// id returns the subject as the audit log names it. It escapes what could end the text early or look like
// another actor.
func (p *Person) id() string {
	var out strings.Builder
	for i := range len(p.Subject) {
		if c := p.Subject[i]; c <= ' ' || c > '~' || c == '(' || c == ')' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
		} else {
			out.WriteByte(c)
		}
	}
	return PersonPrefix + out.String()
}

// Root reports whether the caller has the rights of the admin key of the settings.
func (c Caller) Root() bool {
	if c.Person != nil {
		return c.Person.Root
	}
	return c.Key == nil
}

// Allows reports whether the caller has a scope in its whole project.
func (c Caller) Allows(s store.Scope) bool {
	switch {
	case c.Root():
		return true
	case c.Person != nil:
		return (&store.Key{Scopes: c.Person.Scopes}).Allows(s)
	}
	return c.Key.Allows(s)
}

// Name returns the name of the key or the person.
func (c Caller) Name() string {
	switch {
	case c.Person != nil:
		return c.Person.Name
	case c.Key != nil:
		return c.Key.Name
	}
	return rootName
}

// rootName is the admin key of the settings as the audit log names it.
const rootName = "admin key"

// By returns the caller as the audit log names it: the name, and in parentheses the id. Two keys or persons
// may have the same name.
func (c Caller) By(reason string) store.Actor {
	by := store.Actor{Name: rootName, ID: rootName, Reason: reason}
	switch {
	case c.Person != nil:
		by.ID = c.Person.id()
	case c.Key != nil:
		by.ID = store.KeyPrefix + c.Key.ID
	}
	if by.ID != rootName {
		by.Name = fmt.Sprintf("%s (%s)", c.Name(), by.ID)
	}
	if c.Address.IsValid() {
		by.Address = c.Address.Unmap().String()
	}
	return by
}

// KeyID returns the id of the caller's key. Empty: the admin key of the settings, or a person.
func (c Caller) KeyID() string {
	if c.Key == nil {
		return ""
	}
	return c.Key.ID
}

// Creator returns the caller as Callback.CreatedBy of what it creates.
func (c Caller) Creator() string {
	switch {
	case c.Person != nil:
		return c.Person.id()
	case c.Key != nil:
		return c.Key.ID
	}
	return rootName
}

// CreatorID returns who created a callback: the id of a key, a schedule or a poll with its prefix, or the
// actor's name in the audit log. Empty: not known.
func CreatorID(c *store.Callback) string {
	if _, ok := store.BareID(store.KeyPrefix, store.KeyPrefix+c.CreatedBy); ok {
		return store.KeyPrefix + c.CreatedBy
	}
	return c.CreatedBy
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

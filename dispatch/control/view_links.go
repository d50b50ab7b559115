package control

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/clock"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// Bounds of a merchant's link. maxLinkToken is the longest text that is decoded, in bytes.
const (
	MinLinkLife     = time.Minute
	MaxLinkLife     = 90 * 24 * time.Hour
	DefaultLinkLife = time.Hour
	maxLinkOrigins  = 10
	maxOrigin       = 128
	maxLinkToken    = 4096
)

// LinkLanguages are the languages of a merchant's page.
var LinkLanguages = [...]string{"en", "zh-CN"}

// linkPurpose is authenticated with every token, so that the key's other ciphertexts are no tokens.
const linkPurpose = "dispatcher view link 1"

// A ViewLink gives a merchant the callbacks of one endpoint, without a key. It is not stored: its token has
// all of it, encrypted and authenticated.
type ViewLink struct {
	Project    string `json:"p"`
	EndpointID string `json:"e"`
	// ExpiresAt is the end of the link in Unix milliseconds, by the index's clock.
	ExpiresAt int64 `json:"x"`
	// Version is the endpoint's LinkVersion when the link was created. The link ends when it changes.
	Version int64 `json:"v,omitempty"`
	// Resend: the link also allows sending a callback again.
	Resend bool `json:"r,omitempty"`
	// Embed are the origins whose pages may show the link's pages in a frame. Empty: none.
	Embed []string `json:"o,omitempty"`
	// Language is one of LinkLanguages. Empty: the reader's browser decides.
	Language string `json:"l,omitempty"`
}

// A ViewLinkRequest describes a new link.
type ViewLinkRequest struct {
	// ExpiresIn is from MinLinkLife to MaxLinkLife. Nil: DefaultLinkLife.
	ExpiresIn *time.Duration
	Resend    bool
	// Embed are origins such as "https://portal.example", at most 10.
	Embed    []string
	Language string
	Invalid  []store.FieldError
}

// A NewViewLink is a new link with its token.
type NewViewLink struct {
	ViewLink
	Token string
}

// CreateViewLink creates a link to the callbacks of an endpoint. The audit records the link without its
// token. Its error is store.ErrNotFound for an unknown endpoint.
func (ct *Controller) CreateViewLink(ctx context.Context, project, endpoint string, r ViewLinkRequest,
	by store.Actor) (NewViewLink, error) {
	fail := func(err error) (NewViewLink, error) {
		return NewViewLink{}, fmt.Errorf("create view link: %w", err)
	}
	f := accept.Findings(slices.Clone(r.Invalid))
	r.check(&f)
	checkReason(by, &f)
	if len(f) > 0 {
		return NewViewLink{}, f.Err()
	}
	ep, err := ct.o.Store.Endpoint(ctx, project, endpoint)
	if err != nil {
		return fail(err)
	}
	life := DefaultLinkLife
	if r.ExpiresIn != nil {
		life = *r.ExpiresIn
	}
	link := NewViewLink{ViewLink: ViewLink{
		Project: project, EndpointID: ep.ID, ExpiresAt: ct.clock.Now() + life.Milliseconds(),
		Version: ep.LinkVersion, Resend: r.Resend, Embed: r.Embed, Language: r.Language,
	}}
	aead, err := ct.linkCipher(ctx)
	if err != nil {
		return fail(err)
	}
	link.Token, err = sealViewLink(aead, &link.ViewLink)
	if err != nil {
		return fail(err)
	}
	made, err := json.Marshal(map[string]any{
		"expires_at": clock.Instant(link.ExpiresAt), "resend": link.Resend, "embed": link.Embed,
	})
	if err != nil {
		return fail(err)
	}
	return link, ct.audit(ctx, project, "endpoint.view_link", ep.ID, string(made), by)
}

// check records the invalid fields of the request.
func (r *ViewLinkRequest) check(f *accept.Findings) {
	if r.ExpiresIn != nil && (*r.ExpiresIn < MinLinkLife || *r.ExpiresIn > MaxLinkLife) {
		f.Add("expires_in", "must be from 1m to 90d")
	}
	if r.Language != "" && !slices.Contains(LinkLanguages[:], r.Language) {
		f.Add("lang", "must be one of %s", strings.Join(LinkLanguages[:], ", "))
	}
	if len(r.Embed) > maxLinkOrigins {
		f.Add("embed", "has more than %d origins", maxLinkOrigins)
		return
	}
	for i, origin := range r.Embed {
		if !isOrigin(origin) {
			f.Add(fmt.Sprintf("embed[%d]", i),
				"must be an origin such as https://portal.example, without a path; write an "+
					"international host name in its xn-- form")
		}
	}
}

// isOrigin reports whether a text is a scheme, a host name and perhaps a port. The text becomes part of a
// Content-Security-Policy, so it has no other characters.
func isOrigin(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || len(text) > maxOrigin {
		return false
	}
	if u.Scheme+"://"+u.Host != text || u.Hostname() == "" {
		return false
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return false
		}
	}
	return strings.IndexFunc(u.Hostname(), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) < 0
}

// RevokeViewLinks ends all links to the callbacks of an endpoint, in all processes at once.
func (ct *Controller) RevokeViewLinks(
	ctx context.Context, project, id string, by store.Actor,
) (store.Endpoint, error) {
	f := accept.Findings{}
	checkReason(by, &f)
	if len(f) > 0 {
		return store.Endpoint{}, f.Err()
	}
	ep, err := ct.o.Store.PatchEndpoint(ctx, project, id, func(e *store.Endpoint) error {
		e.LinkVersion++
		return nil
	}, ct.clock.Now(), by)
	return ep, ct.settingsChanged(ctx, "revoke view links of endpoint "+id, err)
}

// OpenViewLink returns the link of a token. Its error is store.ErrNotFound for a text that is no token of
// this installation. The link may have ended: see LinkedEndpoint.
func (ct *Controller) OpenViewLink(ctx context.Context, token string) (ViewLink, error) {
	aead, err := ct.linkCipher(ctx)
	if err != nil {
		return ViewLink{}, fmt.Errorf("open view link: %w", err)
	}
	link, ok := openViewLink(aead, token)
	if !ok {
		return ViewLink{}, store.ErrNotFound
	}
	return link, nil
}

// LinkedEndpoint returns the endpoint of a link. Its error is store.ErrNotFound if the link has expired or
// was revoked, or if the endpoint was deleted.
func (ct *Controller) LinkedEndpoint(ctx context.Context, link *ViewLink) (store.Endpoint, error) {
	if ct.clock.Now() >= link.ExpiresAt {
		return store.Endpoint{}, store.ErrNotFound
	}
	ep, err := ct.o.Store.Endpoint(ctx, link.Project, link.EndpointID)
	switch {
	case err != nil:
		return store.Endpoint{}, fmt.Errorf("read the endpoint of a view link: %w", err)
	case ep.LinkVersion != link.Version:
		return store.Endpoint{}, store.ErrNotFound
	}
	return ep, nil
}

// linkCipher returns the cipher of tokens.
func (ct *Controller) linkCipher(ctx context.Context) (cipher.AEAD, error) {
	key, err := ct.secret.LinkKey(ctx)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealViewLink returns the token of a link.
func sealViewLink(aead cipher.AEAD, link *ViewLink) (string, error) {
	text, err := json.Marshal(link)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nil, nil, text, []byte(linkPurpose))), nil
}

// openViewLink decrypts a token. The cipher compares the authentication tag in constant time.
func openViewLink(aead cipher.AEAD, token string) (link ViewLink, ok bool) {
	if len(token) > maxLinkToken || strings.ContainsAny(token, "\r\n") {
		return link, false
	}
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(sealed) < aead.Overhead() {
		return link, false
	}
	text, err := aead.Open(nil, nil, sealed, []byte(linkPurpose))
	if err != nil {
		return link, false
	}
	err = json.Unmarshal(text, &link)
	return link, err == nil
}

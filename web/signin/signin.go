// Package signin signs people in with OpenID Connect: the authorization code flow with PKCE.
//
// A Provider is the operator's identity provider. It is read when the first person signs in, so a provider
// that is down delays no start. An Attempt is one sign-in of one browser: all values that protect it are
// derived from one secret, which the browser keeps in a cookie. So the server stores nothing before a person
// is known.
//
// The package makes no decisions about sessions and pages. It sends requests to the provider only.
package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

var (
	// ErrUnavailable: the provider does not respond, or its response cannot be used. It is not the person's
	// fault.
	ErrUnavailable = errors.New("the sign-in service is not available")
	// ErrRefused: the provider did not accept the code, or its ID token is not valid for this attempt.
	ErrRefused = errors.New("the sign-in was refused")
)

const (
	// exchangeTimeout bounds all requests of one sign-in, requestTimeout each of them. maxResponse bounds a
	// response in bytes.
	exchangeTimeout = 12 * time.Second
	requestTimeout  = 8 * time.Second
	maxResponse     = 1 << 20
	// maxExchanges bounds the sign-ins that wait for the provider at once, in this process.
	maxExchanges = 16
	// clockSkew is how long an ID token is accepted after its end.
	clockSkew = time.Minute
	// keepFor is how long the provider's description and its keys are used before they are read again.
	// retryAfter is the least time between two reads.
	keepFor    = time.Hour
	retryAfter = 2 * time.Second
)

// CallbackPath is the path of the redirect URI, below the public URL.
const CallbackPath = "/ui/sign-in/callback"

// Options configure a Provider. All but ClientSecret and GroupsClaim are required.
type Options struct {
	// Issuer is the provider's URL, as its ID tokens have it. See CheckIssuer.
	Issuer   string
	ClientID string
	// ClientSecret is empty for a public client.
	ClientSecret string
	// RedirectURL is the URL to which the provider sends the browser back.
	RedirectURL string
	// GroupsClaim is the claim of the ID token with the person's groups. Empty: groups.
	GroupsClaim string
}

// A Provider is an identity provider. It is safe for concurrent use.
type Provider struct {
	o      Options
	client *http.Client
	// exchanges has a token for each sign-in that waits for the provider.
	exchanges chan struct{}
	// reading is held while found is read or written.
	reading chan struct{}
	found   *description
	// readAt is when the description was last read, readErr why that failed.
	readAt  time.Time
	readErr error
}

// A description is what the provider says about itself.
type description struct {
	config   oauth2.Config
	verifier *oidc.IDTokenVerifier
	readAt   time.Time
}

// New returns a Provider. It sends no request.
func New(o Options) *Provider {
	o.GroupsClaim = cmp.Or(o.GroupsClaim, "groups")
	transport := &http.Transport{ // without a proxy of the environment, as everything that leaves
		DialContext:     (&net.Dialer{Timeout: requestTimeout / 2}).DialContext,
		MaxConnsPerHost: maxExchanges, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		TLSHandshakeTimeout: requestTimeout / 2, MaxResponseHeaderBytes: 64 << 10,
	}
	return &Provider{
		o: o, exchanges: make(chan struct{}, maxExchanges), reading: make(chan struct{}, 1),
		client: &http.Client{
			Transport: bounded{transport, IsLoopback(o.Issuer)}, Timeout: requestTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// CloseIdle closes connections to the provider that are not in use.
func (p *Provider) CloseIdle() { p.client.CloseIdleConnections() }

// Issuer returns the provider's URL.
func (p *Provider) Issuer() string { return p.o.Issuer }

// Host returns the host of the provider's URL, for people.
func (p *Provider) Host() string {
	u, err := url.Parse(p.o.Issuer)
	if err != nil {
		return p.o.Issuer
	}
	return u.Host
}

// CheckIssuer returns an error if a URL cannot be that of a provider: it must be https, or http on a loopback
// address.
func CheckIssuer(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.User != nil,
		u.RawQuery != "", u.Fragment != "":
		return errors.New("is not a URL such as https://login.example.com without credentials and query")
	case u.Scheme == "http" && !IsLoopback(text):
		return errors.New("must begin with https://; http:// is for loopback addresses only")
	}
	return nil
}

// IsLoopback reports whether the host of a URL is a loopback address or localhost.
func IsLoopback(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// bounded is a transport that bounds responses and refuses requests without TLS, unless the provider is on
// loopback. The URLs of these requests are the provider's, not the operator's.
type bounded struct {
	next     *http.Transport
	loopback bool
}

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !(b.loopback && IsLoopback(r.URL.String())) {
		return nil, errors.New("the sign-in service names a URL without https")
	}
	res, err := b.next.RoundTrip(r)
	if err == nil {
		res.Body = http.MaxBytesReader(nil, res.Body, maxResponse)
	}
	return res, err
}

func (b bounded) CloseIdleConnections() { b.next.CloseIdleConnections() }

// Check reads the provider's description. Its error is an ErrUnavailable.
func (p *Provider) Check(ctx context.Context) error {
	_, err := p.describe(ctx)
	return err
}

// describe returns the provider's description. It reads it if there is none or if it is old; an old one is
// used on while the provider does not respond.
func (p *Provider) describe(ctx context.Context) (*description, error) {
	select {
	case p.reading <- struct{}{}:
		defer func() { <-p.reading }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
	now := time.Now()
	if p.found != nil && now.Sub(p.found.readAt) < keepFor {
		return p.found, nil
	}
	if p.readAt.IsZero() || now.Sub(p.readAt) >= retryAfter {
		found, err := p.read(ctx)
		switch {
		case err == nil:
			p.found = found
		case ctx.Err() != nil: // the browser left; that says nothing about the provider
			return nil, err
		}
		p.readAt, p.readErr = time.Now(), err
	}
	if p.found == nil {
		return nil, p.readErr
	}
	return p.found, nil
}

// read reads the provider's description.
func (p *Provider) read(ctx context.Context) (*description, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), requestTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, p.o.Issuer)
	var says struct {
		Keys        string   `json:"jwks_uri"`
		Scopes      []string `json:"scopes_supported"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err == nil {
		err = provider.Claims(&says)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read its description: %s", ErrUnavailable, short(err))
	}
	endpoint := provider.Endpoint()
	for _, u := range []string{endpoint.AuthURL, endpoint.TokenURL, says.Keys} {
		if err := CheckEndpoint(u, IsLoopback(p.o.Issuer)); err != nil {
			return nil, fmt.Errorf("%w: its description: %w", ErrUnavailable, err)
		}
	}
	endpoint.AuthStyle = oauth2.AuthStyleInParams
	basic := len(says.AuthMethods) == 0 || slices.Contains(says.AuthMethods, "client_secret_basic")
	if p.o.ClientSecret != "" && basic {
		endpoint.AuthStyle = oauth2.AuthStyleInHeader
	}
	// Some providers refuse scopes that they do not know, others send groups only if asked for them.
	scopes := []string{oidc.ScopeOpenID, "profile", "email"}
	if slices.Contains(says.Scopes, "groups") {
		scopes = append(scopes, "groups")
	}
	keys := keySet{oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), p.client), says.Keys)}
	return &description{
		config: oauth2.Config{ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: endpoint,
			RedirectURL: p.o.RedirectURL, Scopes: scopes},
		verifier: oidc.NewVerifier(p.o.Issuer, keys, &oidc.Config{
			ClientID: p.o.ClientID, SupportedSigningAlgs: asymmetric,
			Now: func() time.Time { return time.Now().Add(-clockSkew) },
		}),
		readAt: time.Now(),
	}, nil
}

// asymmetric are the accepted algorithms of ID tokens. They exclude "none", and those whose key the provider
// and the client share.
var asymmetric = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256,
	oidc.ES384, oidc.ES512, oidc.EdDSA}

// CheckEndpoint returns an error unless a URL of the provider's description has the scheme https, or is on
// loopback where that is allowed.
func CheckEndpoint(text string, loopback bool) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && !(loopback && IsLoopback(text)) {
		return fmt.Errorf("%.100q is not an https URL", text)
	}
	return nil
}

// A keySet reports in the context whether the provider's keys could not be read. The verifier's own error
// does not tell that from a wrong signature.
type keySet struct{ oidc.KeySet }

type keyFailure struct{}

// VerifySignature reports a failure. Of the errors of an oidc.RemoteKeySet only the one about the keys wraps
// another: a network error, a status other than 200, an unreadable body, or the end of the context.
func (k keySet) VerifySignature(ctx context.Context, jwt string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, jwt)
	if failed, ok := ctx.Value(keyFailure{}).(*bool); ok && errors.Unwrap(err) != nil {
		*failed = true
	}
	return payload, err
}

// An Attempt is one sign-in of one browser. Its secret is 32 random bytes in base64, and also the verifier of
// PKCE.
type Attempt struct{ Secret string }

// Begin returns a new attempt.
func Begin() Attempt {
	b := make([]byte, sha256.Size)
	rand.Read(b) // never fails
	return Attempt{base64.RawURLEncoding.EncodeToString(b)}
}

// derive returns a value that is bound to the attempt and does not reveal its secret.
func (a Attempt) derive(label string) string {
	sum := sha256.Sum256([]byte(label + " " + a.Secret))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Is reports whether a callback's state is that of the attempt.
func (a Attempt) Is(state string) bool {
	return subtle.ConstantTimeCompare([]byte(a.derive("state")), []byte(state)) == 1
}

func (a Attempt) nonce() string { return a.derive("nonce") }

// URL returns the provider's page at which the person signs in. choose asks the provider to let the person
// choose another account.
func (p *Provider) URL(ctx context.Context, a Attempt, choose bool) (string, error) {
	d, err := p.describe(ctx)
	if err != nil {
		return "", err
	}
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.nonce()), oauth2.S256ChallengeOption(a.Secret)}
	if choose {
		options = append(options, oauth2.SetAuthURLParam("prompt", "select_account"))
	}
	return d.config.AuthCodeURL(a.derive("state"), options...), nil
}

// A Person is an account of the provider.
type Person struct {
	// Subject identifies the account at its provider. Name and Email are for display only.
	Subject, Name, Email string
	Groups               []string
}

// maxSubject is the longest subject by the standard, in bytes. maxName bounds a name in characters.
const (
	maxSubject = 255
	maxName    = 100
)

// Finish exchanges the code of a callback for the person. Its errors are ErrUnavailable and ErrRefused.
func (p *Provider) Finish(ctx context.Context, a Attempt, code string) (Person, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), exchangeTimeout)
	defer cancel()
	select {
	case p.exchanges <- struct{}{}:
		defer func() { <-p.exchanges }()
	case <-ctx.Done():
		return Person{}, fmt.Errorf("%w: too many people sign in: %w", ErrUnavailable, ctx.Err())
	}
	d, err := p.describe(ctx)
	if err != nil {
		return Person{}, err
	}
	token, err := d.config.Exchange(ctx, code, oauth2.VerifierOption(a.Secret))
	if err != nil {
		return Person{}, fmt.Errorf("%w: exchange the code: %s", kindOf(err), short(err))
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok {
		return Person{}, fmt.Errorf("%w: the response has no ID token", ErrUnavailable)
	}
	var keysFailed bool
	id, err := d.verifier.Verify(context.WithValue(ctx, keyFailure{}, &keysFailed), raw)
	switch {
	case keysFailed:
		return Person{}, fmt.Errorf("%w: read its keys: %s", ErrUnavailable, short(err))
	case err != nil:
		return Person{}, fmt.Errorf("%w: ID token: %s", ErrRefused, short(err))
	case subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(a.nonce())) != 1:
		return Person{}, fmt.Errorf("%w: ID token: its nonce is of another sign-in", ErrRefused)
	}
	return p.person(id)
}

// kindOf returns ErrRefused if the provider did not accept the code, and ErrUnavailable for all else, such as
// a wrong client secret.
func kindOf(err error) error {
	var answer *oauth2.RetrieveError
	if errors.As(err, &answer) && answer.ErrorCode == "invalid_grant" {
		return ErrRefused
	}
	return ErrUnavailable
}

// person reads the claims of a verified ID token.
func (p *Provider) person(id *oidc.IDToken) (Person, error) {
	var claims map[string]json.RawMessage
	if err := id.Claims(&claims); err != nil {
		return Person{}, fmt.Errorf("%w: ID token: %w", ErrRefused, err)
	}
	text := func(claim string) (s string) {
		if err := json.Unmarshal(claims[claim], &s); err != nil {
			return "" // absent, or not a text
		}
		return s
	}
	// azp names the client that the token was issued to. It is required with several audiences.
	if azp := text("azp"); azp != p.o.ClientID && (azp != "" || len(id.Audience) > 1) {
		return Person{}, fmt.Errorf("%w: ID token: it was issued to another client", ErrRefused)
	}
	if id.Subject == "" || len(id.Subject) > maxSubject {
		return Person{}, fmt.Errorf("%w: ID token: its subject has %d bytes", ErrRefused, len(id.Subject))
	}
	who := Person{Subject: id.Subject, Email: printable(text("email"))}
	who.Name = cmp.Or(printable(text("name")), printable(text("preferred_username")), who.Email,
		printable(who.Subject))
	if given, ok := claims[p.o.GroupsClaim]; ok && json.Unmarshal(given, &who.Groups) != nil {
		who.Groups = nil
		if one := text(p.o.GroupsClaim); one != "" {
			who.Groups = []string{one}
		}
	}
	return who, nil
}

// printable returns a text of the provider without characters that could hide or reorder others, and cut to
// maxName.
func printable(s string) string {
	runes := []rune(strings.TrimSpace(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar {
			return -1
		}
		return r
	}, s)))
	return strings.TrimSpace(string(runes[:min(len(runes), maxName)]))
}

// short returns the first line of an error's text, cut to a few hundred bytes: libraries quote whole
// responses.
func short(err error) string {
	first, _, _ := strings.Cut(err.Error(), "\n")
	if len(first) > 300 {
		first = strings.ToValidUTF8(first[:300], "") + "…"
	}
	return first
}

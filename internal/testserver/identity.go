package testserver

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"
)

// An IdentityProvider is a stand-in for an OpenID Connect provider. It has one client. Everyone who asks is
// signed in as the person of SignIn, without a page in between. It checks the client's secret, the redirect
// URI and the code verifier, and accepts each code once.
type IdentityProvider struct {
	// URL is the issuer.
	URL, ClientID, ClientSecret, RedirectURI string

	mu     sync.Mutex
	key    *rsa.PrivateKey
	keyID  int
	person map[string]any
	// codes are those that were not exchanged yet.
	codes map[string]granted
	// spoil changes the header and the claims of each ID token before it is signed.
	spoil func(header, claims map[string]any)
	// respond, if not nil, answers all requests instead; respondAt is by path.
	respond   http.HandlerFunc
	respondAt map[string]http.HandlerFunc
	// asked are the queries of the requests to sign in.
	asked []url.Values
}

// granted is what a code stands for.
type granted struct {
	challenge, nonce string
	person           map[string]any
}

// NewIdentityProvider starts a provider that ends with the test. redirectURI is the one that its client has
// registered.
func NewIdentityProvider(tb testing.TB, redirectURI string) *IdentityProvider {
	tb.Helper()
	p := &IdentityProvider{
		ClientID: "dispatcher", ClientSecret: "a secret of the stand-in", RedirectURI: redirectURI,
		codes: make(map[string]granted), person: map[string]any{"sub": "1001", "name": "Wang Wei"},
		respondAt: make(map[string]http.HandlerFunc),
	}
	p.Rotate(tb)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.describe)
	mux.HandleFunc("GET /keys", p.keys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		respond := p.respond
		if at := p.respondAt[r.URL.Path]; at != nil {
			respond = at
		}
		p.mu.Unlock()
		if respond == nil {
			respond = mux.ServeHTTP
		}
		respond(w, r)
	}))
	tb.Cleanup(server.Close)
	p.URL = server.URL
	return p
}

// SignIn sets the person who is signed in, by the claims of the ID token. They need a sub.
func (p *IdentityProvider) SignIn(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.person = claims
}

// Spoil changes the header and the claims of all later ID tokens before they are signed. Nil: no more.
// The header alg "none" leaves out the signature, and "HS256" signs with the client's secret.
func (p *IdentityProvider) Spoil(f func(header, claims map[string]any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil = f
}

// Respond answers all later requests with a handler. Nil: no more.
func (p *IdentityProvider) Respond(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.respond = h
}

// RespondAt answers all later requests of a path with a handler. Nil: no more.
func (p *IdentityProvider) RespondAt(path string, h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.respondAt[path] = h
}

// Rotate replaces the signing key.
func (p *IdentityProvider) Rotate(tb testing.TB) {
	tb.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		tb.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key = key
	p.keyID++
}

// Asked returns the queries of the requests to sign in so far.
func (p *IdentityProvider) Asked() []url.Values {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]url.Values(nil), p.asked...)
}

func (p *IdentityProvider) describe(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
		"jwks_uri": p.URL + "/keys", "response_types_supported": []string{"code"},
		"scopes_supported":                      []string{"openid", "profile", "email", "groups"},
		"id_token_signing_alg_values_supported": []string{"RS256"},
		"code_challenge_methods_supported":      []string{"S256"},
	})
}

func (p *IdentityProvider) keys(w http.ResponseWriter, _ *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{
		"kty": "RSA", "use": "sig", "alg": "RS256", "kid": fmt.Sprint(p.keyID),
		"n": encode(p.key.N.Bytes()), "e": encode(big.NewInt(int64(p.key.E)).Bytes()),
	}}})
}

// authorize sends the browser back with a code. A request that the client must not send gets an error
// instead, which a person would see.
func (p *IdentityProvider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, q)
	for name, want := range map[string]string{
		"client_id": p.ClientID, "redirect_uri": p.RedirectURI, "response_type": "code",
		"code_challenge_method": "S256",
	} {
		if got := q.Get(name); got != want {
			http.Error(w, fmt.Sprintf("%s is %q, want %q", name, got, want), http.StatusBadRequest)
			return
		}
	}
	code := rand.Text()
	p.codes[code] = granted{q.Get("code_challenge"), q.Get("nonce"), maps.Clone(p.person)}
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.URL}}
	http.Redirect(w, r, p.RedirectURI+"?"+back.Encode(), http.StatusFound)
}

// token exchanges a code for an ID token.
func (p *IdentityProvider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	p.mu.Lock()
	defer p.mu.Unlock()
	if plain, err := url.QueryUnescape(secret); err != nil || id != p.ClientID || plain != p.ClientSecret {
		reply(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	code := r.PostFormValue("code")
	given, known := p.codes[code]
	delete(p.codes, code)
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || r.PostFormValue("redirect_uri") != p.RedirectURI || encode(challenge[:]) != given.challenge {
		reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	header := map[string]any{"alg": "RS256", "kid": fmt.Sprint(p.keyID)}
	claims := map[string]any{
		"iss": p.URL, "aud": p.ClientID, "nonce": given.nonce,
		"iat": time.Now().Unix(), "exp": time.Now().Add(5 * time.Minute).Unix(),
	}
	maps.Copy(claims, given.person)
	if p.spoil != nil {
		p.spoil(header, claims)
	}
	reply(w, http.StatusOK, map[string]any{
		"access_token": rand.Text(), "token_type": "Bearer", "id_token": p.sign(header, claims),
	})
}

// sign returns a JWT.
func (p *IdentityProvider) sign(header, claims map[string]any) string {
	text := encode(marshal(header)) + "." + encode(marshal(claims))
	sum := sha256.Sum256([]byte(text))
	var signature []byte
	switch header["alg"] {
	case "none":
	case "HS256":
		mac := hmac.New(sha256.New, []byte(p.ClientSecret))
		mac.Write([]byte(text))
		signature = mac.Sum(nil)
	default:
		var err error
		signature, err = rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
		if err != nil {
			panic(err) // the key has 2048 bits
		}
	}
	return text + "." + encode(signature)
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the claims of a test
	}
	return b
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(marshal(v)) // a client that left needs no answer
}

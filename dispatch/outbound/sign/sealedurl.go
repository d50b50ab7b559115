package sign

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The signers of alert sinks. Their secret has the whole URL, because the URL of a chat robot is its
// credential. SQL has the URL's scheme and host only. They are not among Names, and Parse refuses them:
// callers cannot use them.
const (
	// SealedURL sends to the URL of the secret. With a signing secret ("whsec_…") it signs as Standard.
	SealedURL = "sealed-url"
	// DingTalk adds a timestamp and an HMAC to the URL's query, if there is a signing secret.
	DingTalk = "dingtalk"
	// Feishu adds a timestamp and an HMAC to the JSON body, if there is a signing secret. Lark is the same.
	Feishu = "feishu"
)

// UseURL is the use of the secrets of SealedURL, DingTalk and Feishu: a URL, and after a line feed the
// robot's signing secret if it has one. It is not among Uses.
const UseURL = "url"

// sealedURLs are the signers of alert sinks.
var sealedURLs = [...]kind{
	{name: SealedURL, new: simply(UseURL, signSealedURL, verifyNothing)},
	{name: DingTalk, new: simply(UseURL, signDingTalk, verifyNothing)},
	{name: Feishu, new: simply(UseURL, signFeishu, verifyNothing)},
}

// IsSealedURL reports whether the signer takes the URL from its secret. Such a request is sent to the
// endpoint's own host only.
func (k Kind) IsSealedURL() bool { return k.Use == UseURL }

// FormatURLSecret returns the written form of a secret of UseURL.
func FormatURLSecret(rawURL, secret string) string {
	if secret == "" {
		return rawURL
	}
	return rawURL + "\n" + secret
}

// A sealedURL is a parsed secret of UseURL.
type sealedURL struct {
	url    *url.URL
	secret string
}

// checkURLSecret checks a secret of UseURL.
func checkURLSecret(key []byte) error {
	_, err := parseSealedURL(key)
	return err
}

// parseSealedURL parses a secret of UseURL. Its errors never contain the secret.
func parseSealedURL(key []byte) (sealedURL, error) {
	raw, secret, _ := strings.Cut(string(key), "\n")
	if len(key) > maxTextBytes {
		return sealedURL{}, errors.New("secret is too long")
	}
	if !parse.IsPrintable(raw) || !parse.IsPrintable(secret) || strings.Contains(raw, " ") {
		return sealedURL{}, errors.New("secret must be a URL, and at most one more line, in printable ASCII")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Opaque != "" {
		return sealedURL{}, errors.New("secret is not a URL with a host")
	}
	return sealedURL{u, secret}, nil
}

var errSealedHost = errors.New("the URL of the secret has another host than the endpoint")

// openSealedURL returns the URL and the secret of a request, and a signature that replaces the request's URL.
// It fails if the two URLs have different hosts.
func openSealedURL(r *Request) (sealedURL, Signature, error) {
	s, err := parseSealedURL(r.Secrets[0].Key)
	if err != nil {
		return s, Signature{}, &KeyError{"the sealed URL cannot be used"}
	}
	if !store.SameHost(s.url.String(), r.URL.String()) {
		return s, Signature{}, errSealedHost
	}
	return s, Signature{URL: s.url, KeyID: r.Secrets[0].ID, Hidden: s.hidden()}, nil
}

// hidden returns the parts of the URL that are credentials: the path's segments, the query's values and the
// password, as they are written and decoded, and the signing secret.
func (s sealedURL) hidden() []string {
	u := s.url
	values := []string{u.String(), u.RequestURI(), s.secret}
	add := func(part string, decode func(string) (string, error)) {
		values = append(values, part)
		if plain, err := decode(part); err == nil && plain != part {
			values = append(values, plain)
		}
	}
	password, ok := u.User.Password()
	if ok {
		user := u.User.Username()
		values = append(values, user, password, url.QueryEscape(password))
		for _, sent := range []string{"\x00" + user + "\x00" + password, user, password} { // AUTH of SMTP
			values = append(values, base64.StdEncoding.EncodeToString([]byte(sent)))
		}
	}
	for segment := range strings.SplitSeq(u.EscapedPath(), "/") {
		add(segment, url.PathUnescape)
	}
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		_, value, ok := strings.Cut(part, "=")
		if !ok {
			value = part
		}
		add(value, url.QueryUnescape)
	}
	kept := values[:0]
	for _, v := range values {
		if len(v) >= minHiddenPart || v == password && len(v) >= MinPassword {
			kept = append(kept, v)
		}
	}
	// A value that contains another one is masked first, as a whole.
	slices.SortStableFunc(kept, func(a, b string) int { return len(b) - len(a) })
	return kept
}

// MinPassword is the minimum length of a mail server's password. Shorter ones would occur by chance, and
// could not be masked in its replies.
const MinPassword = 4

// minHiddenPart is the minimum length of a part of a URL that is masked in responses. Shorter parts, such as
// "v2", occur by chance. Only passwords are masked from MinPassword on.
const minHiddenPart = 8

// signSealedURL signs as Standard Webhooks v1, if there is a signing secret.
func signSealedURL(r *Request) (Signature, error) {
	s, out, err := openSealedURL(r)
	if err != nil || s.secret == "" {
		return out, err
	}
	key, err := ParseSecret(s.secret)
	if err != nil {
		return Signature{}, &KeyError{"the signing secret of the sealed URL cannot be used"}
	}
	standard := *r
	standard.Secrets = []Secret{{ID: r.Secrets[0].ID, Key: key}}
	signed, err := signV1(&standard)
	out.Standard = signed.Standard
	return out, err
}

// signDingTalk adds timestamp and sign to the query: base64 of HMAC-SHA256 over "MILLISECONDS\nSECRET", with
// the secret as the key.
func signDingTalk(r *Request) (Signature, error) {
	s, out, err := openSealedURL(r)
	if err != nil || s.secret == "" {
		return out, err
	}
	ms := strconv.FormatInt(r.At.UnixMilli(), 10)
	signature := sumBase64(s.secret, ms+"\n"+s.secret)
	query := "timestamp=" + ms + "&sign=" + url.QueryEscape(signature)
	if s.url.RawQuery != "" {
		query = s.url.RawQuery + "&" + query
	}
	signed := *s.url
	signed.RawQuery = query
	out.URL, out.Hidden = &signed, append(out.Hidden, signature, url.QueryEscape(signature))
	return out, nil
}

// signFeishu adds timestamp and sign to the body, before its other members: base64 of HMAC-SHA256 over the
// empty message, with the key "SECONDS\nSECRET".
func signFeishu(r *Request) (Signature, error) {
	s, out, err := openSealedURL(r)
	if err != nil || s.secret == "" {
		return out, err
	}
	body := bytes.TrimSpace(r.Body)
	if len(body) < 2 || body[0] != '{' || !json.Valid(body) {
		return Signature{}, errors.New("the body is not a JSON object, so it cannot be signed")
	}
	signature := sumBase64(r.Seconds+"\n"+s.secret, "")
	signed := []byte(`{"timestamp":"` + r.Seconds + `","sign":"` + signature + `"`)
	if rest := bytes.TrimSpace(body[1:]); rest[0] != '}' {
		signed = append(signed, ',')
	}
	out.Body = append(signed, body[1:]...)
	out.Hidden = append(out.Hidden, signature)
	return out, nil
}

func sumBase64(key, text string) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

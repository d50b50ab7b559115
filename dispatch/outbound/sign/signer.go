package sign

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The names of the signers.
const (
	// SignerStandard signs by Standard Webhooks v1: HMAC-SHA256 over id, timestamp and body.
	Standard = "standard-v1"
	// SignerStandardAsymmetric signs by Standard Webhooks v1a: Ed25519 over the same. Its receivers can
	// verify and cannot forge.
	StandardAsymmetric = "standard-v1a"
	// SignerHMACBody puts HMAC-SHA256 over the body alone into a header, as GitHub and Shopify do.
	HMACBody = "hmac-sha256-body"
	// SignerTimestamped puts "t=TIMESTAMP,v1=HMAC" over timestamp and body into a header, as Stripe does.
	Timestamped = "t-v1"
	// SignerSortedKV signs the body's fields, sorted, as WeChat Pay v2, Alipay and most payment aggregators
	// in China do.
	SortedKV = "sorted-kv"
	// SignerWeChatV3 signs by WeChat Pay v3: RSA-SHA256 over timestamp, nonce and body, in a merchant's
	// requests over method and path too.
	WeChatV3 = "wechat-v3-rsa"
	// SignerBasic sends a user and a password (RFC 7617), SignerBearer a token (RFC 6750): no signatures, and
	// seen by who reads along.
	Basic  = "basic"
	Bearer = "bearer"
	// SignerNone sends unsigned, for bodies that the caller signed.
	None = "none"
)

// A SignerInfo tells people of a signer.
type Info struct {
	Name        string
	Description string
	// Use says what kind of secret it takes, for ParseSecretFor; empty: none. sorted-kv with alg rsa2 takes
	// UseRSA instead.
	Use     string
	Options []Option
}

// A SignerOption is a member that {"type": …} may have beside it.
type Option struct {
	Name        string
	Description string
	// Default is the value that stands for leaving it out, as JSON.
	Default store.JSONText
}

// A kind is what is known of a signer: what people are told of it, and itself with nothing but defaults.
type kind struct {
	name, description string
	new               func() options
	options           []Option
}

var (
	headerOption = Option{"header", "the header that the signature is put into", ""}
	keyOption    = Option{"key",
		`"bytes": the secret's bytes are the key; "written": the whole text "whsec_…" is, as ` +
			"libraries take it that do not decode secrets", ""}
)

// kinds are every signer, the default one first. The default of an option stands here where it is not a
// single one.
var kinds = [...]kind{
	{Standard, "Standard Webhooks v1: webhook-signature has HMAC-SHA256 over id, timestamp and body; " +
		"during a rotation by both secrets.", plainly(UseHMAC, signV1, verifyV1), nil},
	{StandardAsymmetric, "Standard Webhooks v1a: webhook-signature has Ed25519 over id, timestamp and " +
		"body; during a rotation by both keys.", plainly(UseEd25519, signV1a, verifyV1a), nil},
	{HMACBody, "HMAC-SHA256 over the body in a header of its own, such as GitHub's X-Hub-Signature-256; " +
		"during a rotation the former secret's is in a second header.", newBodyMAC, []Option{
		headerOption,
		{"prefix", "what stands before the signature", ""},
		{"encoding", "hex or base64", ""},
		{"rotation_header",
			`the header of the former secret's signature during a rotation; "": it is not sent`, ""},
		keyOption,
	}},
	{Timestamped, "t=TIMESTAMP,v1=HMAC-SHA256 over timestamp and body in one header, such as Stripe's " +
		"Stripe-Signature; during a rotation with a v1 for both secrets.", newTimestampedMAC, []Option{
		headerOption, keyOption,
	}},
	{SortedKV, "A signature over the body's fields (form, flat JSON or flat XML; without a body, the " +
		"query's), sorted and joined, such as WeChat Pay v2's and Alipay's; always by the newest secret.",
		newDefaultSortedKV, []Option{
			{"alg", "md5, hmac-sha256 or rsa2 (RSA-SHA256)", ""},
			{"exclude", "the fields that are not signed", `["sign"] or, with rsa2, ["sign","sign_type"]`},
			{"key_suffix",
				`md5, hmac-sha256: what joins the fields to the key behind them; "" with md5: nothing does, with hmac-sha256: the key is not put there`, ""},
			{"case", "md5, hmac-sha256: upper or lower, the case of the hex digits", ""},
			{"skip_empty", "whether empty fields are left out of what is signed", ""},
			{"put", `where the signature goes: {"in": "body", "query" or "header", "name": …}`, ""},
			{"sign_type",
				`the value of a field sign_type that is put beside a signature in body or query; "": there is none`, ""},
			{"nonce",
				`the name of a field that is put among those that are signed, with 32 random letters and digits, others at each attempt, such as WeChat Pay v2's nonce_str; "": there is none`, ""},
			{"time",
				`the name of a field that is put among those that are signed, with the time of the attempt, such as Alipay's timestamp; "": there is none`, ""},
			{"time_format", "how that time is written: unix (seconds), unix_ms, or datetime (2006-01-02 " +
				"15:04:05 in UTC+8)", ""},
		}},
	{WeChatV3, "WeChat Pay v3: Wechatpay-Signature has RSA-SHA256 over timestamp, nonce and body, " +
		"Wechatpay-Serial the secret's label; always by the newest secret. With mchid as merchants sign requests to it.", newWeChat, []Option{
		{"mchid",
			`the merchant's number, 1 to 32 letters and digits: Authorization has RSA-SHA256 over method, path with query, timestamp, nonce and body; "": Wechatpay-* headers, as in notifications`, ""},
	}},
	{Basic, "Authorization: Basic, user and password; always the newest.", sends("Basic", UseBasic), nil},
	{Bearer, "Authorization: Bearer, a token; always the newest.", sends("Bearer", UseText), nil},
	{None, "Nothing is signed: the caller did, or nobody needs to.", plainly("", signNothing, verifyNothing),
		nil},
}

// Infos returns every signer, the default one first.
func Infos() []Info {
	infos := make([]Info, len(kinds))
	for i, k := range kinds {
		s := k.new()
		infos[i] = Info{Name: k.name, Description: k.description, Use: s.use(),
			Options: slices.Clone(k.options)}
		for j := range infos[i].Options {
			o := &infos[i].Options[j]
			o.Default = cmp.Or(o.Default, store.JSONText(parse.EncodeField(s, o.Name)))
		}
	}
	return infos
}

// Names returns the names of the signers, the default one first. It is cheap: every accept asks for them.
func Names() []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return names
}

// options are a signer with what it can be told, as the JSON of a setting has it.
type options interface {
	// defaults returns the signer with what stands for leaving its options out.
	defaults() options
	// use is the use of the signer's secrets; empty: it has none.
	use() string
	// sign signs with secrets none of which is empty. Its errors are a *KeyError, or others if the request is
	// at fault.
	sign(c *Cache, r *Request) (Signature, error)
	verify(a *arrival) error
}

// A signer is compiled. It is read-only.
type signer struct {
	name string
	options
}

// newSigner returns a signer with nothing but defaults; nil: there is none of that name.
func newSigner(name string) *signer {
	for i := range kinds {
		if kinds[i].name == name {
			return &signer{name, kinds[i].new()}
		}
	}
	return nil
}

// named are the signers with nothing but defaults, by their names.
var named = func() map[string]*signer {
	all := make(map[string]*signer, len(kinds))
	for i := range kinds {
		all[kinds[i].name] = newSigner(kinds[i].name)
	}
	return all
}()

// plain is a signer without options: what its secrets are for, how it signs and what it verifies.
type plain struct {
	Type string `json:"type" most:"64"`

	uses     string
	signs    func(r *Request) (Signature, error)
	verifies func(a *arrival) error
}

func plainly(use string, signs func(r *Request) (Signature, error),
	verifies func(a *arrival) error) func() options {
	return func() options { return &plain{uses: use, signs: signs, verifies: verifies} }
}

func (p *plain) defaults() options { return p }

// Known says that there are no options.
func (*plain) Known() string { return "this signer has no options" }

func (p *plain) use() string { return p.uses }

func (p *plain) sign(_ *Cache, r *Request) (Signature, error) { return p.signs(r) }

func (p *plain) verify(a *arrival) error { return p.verifies(a) }

func signNothing(*Request) (Signature, error) { return Signature{}, nil }

func verifyNothing(*arrival) error { return nil }

// ReadSetting reads a signer: its name, or an object with its type and its options.
func (s *signer) ReadSetting(v parse.Setting) {
	kind, isObject := v, v.Raw[0] == '{'
	switch {
	case isObject:
		var ok bool
		kind, ok = v.Member("type")
		if !ok {
			v.In("type").Fail("is missing: one of %s", strings.Join(Names(), ", "))
			return
		}
	case !v.IsText():
		v.Fail(`is a name or an object with a "type"`)
		return
	}
	known := newSigner(kind.Plain())
	if known == nil || !kind.IsText() {
		kind.Fail("is one of %s", strings.Join(Names(), ", "))
		return
	}
	*s = *known
	if !isObject {
		return
	}
	if alg, ok := v.Member("alg"); ok && s.name == SortedKV {
		switch alg.Plain() {
		case algRSA2:
			s.options, v.Shared = newSortedKV(algRSA2), algRSA2
		case algMD5:
			s.options = newSortedKV(algMD5)
		}
	}
	v.Into(s.options)
}

// text returns the signer in its one spelling: its name, or an object with the options that differ from their
// defaults.
func (s *signer) text() string {
	text, changed := parse.EncodeChanged(s.options, s.defaults())
	if !changed {
		return s.name
	}
	return string(text)
}

// Parse reads a signer: a JSON string, its name, or an object {"type": …} with its options (Infos tells
// them). It returns the text that Request.Signer takes: the bare name where no option differs from its
// default, else compact JSON with its members in a fixed order. What is wrong is named relative to the
// signer, as "put.name"; the field "" is the signer itself.
func Parse(raw []byte) (string, []store.FieldError) {
	s := new(signer)
	if wrong := parse.Decode(raw, s, nil); len(wrong) > 0 {
		return "", wrong
	}
	return s.text(), nil
}

// readSigner compiles a signer from its text.
func readSigner(text string) (*signer, error) {
	if s := named[cmp.Or(text, Standard)]; s != nil {
		return s, nil
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = parse.Quote(text)
	}
	s := new(signer)
	if wrong := parse.Decode(raw, s, nil); len(wrong) > 0 {
		return nil, fmt.Errorf("the signer is unknown or cannot be read: %s",
			strings.TrimSpace(wrong[0].Field+" "+wrong[0].Message))
	}
	return s, nil
}

// SignsBody says whether a signer puts its signature into the body, so that a request without one cannot be
// signed. The signer is as Parse returns it.
func SignsBody(text string) bool {
	if !strings.Contains(text, SortedKV) {
		return false
	}
	s, err := readSigner(text)
	if err != nil {
		return false
	}
	kv, ok := s.options.(*sortedKV)
	return ok && kv.Put.In == putBody
}

// A Kind is what decides where the secrets of a signer may be used: its name and the use of its
// secrets. Two signers of the same kind use a secret in the same way.
type Kind struct {
	Name string
	// Use is one of Uses; empty: the signer has no secret.
	Use string
}

// KindOf returns the kind of a signer: a name or a JSON object with its options, as Parse returns it;
// empty means the default one. Anything else is an error.
func KindOf(text string) (Kind, error) {
	s, err := readSigner(text)
	if err != nil {
		return Kind{}, err
	}
	return Kind{s.name, s.use()}, nil
}

// UseOf returns the use of a signer's secrets, as KindOf does.
func UseOf(signer string) (use string, err error) {
	k, err := KindOf(signer)
	return k.Use, err
}

// SendsSecret says whether the signer sends its secret itself, so that the receiver has it then.
func (k Kind) SendsSecret() bool { return k.Name == Basic || k.Name == Bearer }

// IsBound says whether the signer's secrets are for the hosts that they were given for: it sends its secret,
// or has a private key.
func (k Kind) IsBound() bool { return k.SendsSecret() || IsPrivate(k.Use) }

// IsPrivate says whether secrets of a use are private keys: one signs for every receiver alike, and none of
// them has it.
func IsPrivate(use string) bool { return use == UseRSA || use == UseEd25519 }

// maxText is how long an option's text may be, in characters.
const maxText = 64

// A headerName is the name of a header that a signer may set, a headerText what may stand in a header's
// value, a fieldText the name or the value of a field that is put into a form, into JSON or into XML as it
// is.
type (
	headerName string
	headerText string
	fieldText  string
)

// ReadSetting reads a name.
func (h *headerName) ReadSetting(s parse.Setting) {
	name, ok := s.Text(maxText)
	*h = headerName(name)
	if why := h.fault(); ok && why != "" {
		s.Fail("cannot be set: %s", why)
	}
}

func (h headerName) fault() string {
	if strings.EqualFold(string(h), "Content-Type") {
		return "Content-Type follows from the body"
	}
	return CheckHeader(store.Header{Name: string(h)})
}

// ReadSetting reads a text.
func (h *headerText) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxText)
	*h = headerText(text)
	if ok && !parse.IsPrintable(text) {
		s.Fail("has characters that are not printable ASCII")
	}
}

// ReadSetting reads a name or a value.
func (f *fieldText) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxText)
	*f = fieldText(text)
	if ok && (strings.IndexByte("0123456789-", text[0]) >= 0 || !isFieldText(text)) {
		s.Fail("is letters, digits, _ and -, the first a letter or _")
	}
}

func isFieldText(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

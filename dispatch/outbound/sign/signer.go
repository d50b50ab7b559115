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
	// Standard signs as Standard Webhooks v1: HMAC-SHA256 over id, timestamp and body.
	Standard = "standard-v1"
	// StandardAsymmetric signs as Standard Webhooks v1a: Ed25519 over id, timestamp and body. Its receivers
	// can verify signatures but not forge them.
	StandardAsymmetric = "standard-v1a"
	// HMACBody puts HMAC-SHA256 over the body into a header, as GitHub and Shopify do.
	HMACBody = "hmac-sha256-body"
	// Timestamped puts "t=TIMESTAMP,v1=HMAC" over timestamp and body into a header, as Stripe does.
	Timestamped = "t-v1"
	// SortedKV signs the sorted fields of the body, as WeChat Pay v2, Alipay and most payment aggregators in
	// China do.
	SortedKV = "sorted-kv"
	// WeChatV3 signs as WeChat Pay v3: RSA-SHA256 over timestamp, nonce and body. In a merchant's request it
	// also covers method and path.
	WeChatV3 = "wechat-v3-rsa"
	// Basic sends a user and a password (RFC 7617), Bearer a token (RFC 6750). They sign nothing, and the
	// receiver gets the secret itself.
	Basic  = "basic"
	Bearer = "bearer"
	// None sends unsigned, for bodies that the caller has signed.
	None = "none"
)

// An Info describes a signer for people.
type Info struct {
	Name        string
	Description string
	// Use is the use of its secrets; empty means that it has none. sorted-kv with alg rsa2 takes UseRSA
	// instead.
	Use     string
	Options []Option
}

// An Option is a member that {"type": …} may have in addition.
type Option struct {
	Name        string
	Description string
	// Default is the option's default, as JSON.
	Default store.JSONText
}

// A kind is a signer's description and its constructor with all options at their defaults.
type kind struct {
	name, description string
	new               func() options
	options           []Option
}

var (
	headerOption = Option{"header", "the header for the signature", ""}
	keyOption    = Option{"key",
		`"bytes": the decoded secret is the HMAC key; "written": the text "whsec_…" is the key, for ` +
			"libraries that do not decode it", ""}
)

// kinds are all signers, the default one first. An option with an empty Default here gets it from the
// constructor.
var kinds = [...]kind{
	{
		Standard,
		"Standard Webhooks v1: HMAC-SHA256 over id, timestamp and body in webhook-signature. " +
			"During a rotation both secrets sign.",
		simply(UseHMAC, signV1, verifyV1), nil,
	},
	{
		StandardAsymmetric,
		"Standard Webhooks v1a: Ed25519 over id, timestamp and body in webhook-signature. " +
			"During a rotation both keys sign.",
		simply(UseEd25519, signV1a, verifyV1a), nil,
	},
	{
		HMACBody,
		"HMAC-SHA256 over the body in one header, such as GitHub's X-Hub-Signature-256. " +
			"During a rotation a second header has the previous secret's signature.",
		newBodyMAC,
		[]Option{
			headerOption,
			{"prefix", "the text before the signature", ""},
			{"encoding", "hex or base64", ""},
			{"rotation_header",
				`the header for the previous secret's signature during a rotation; "": not sent`, ""},
			keyOption,
		},
	},
	{
		Timestamped,
		"HMAC-SHA256 over timestamp and body as t=TIMESTAMP,v1=HMAC in one header, such as " +
			"Stripe-Signature. During a rotation both secrets sign.",
		newTimestampedMAC,
		[]Option{headerOption, keyOption},
	},
	{
		SortedKV,
		"A signature over the sorted fields of the body (form, flat JSON or flat XML), or of the query if " +
			"there is no body, as WeChat Pay v2 and Alipay do. Only the newest secret signs.",
		newDefaultSortedKV,
		[]Option{
			{"alg", "md5, hmac-sha256 or rsa2 (RSA-SHA256)", ""},
			{"exclude", "the fields that are not signed", `["sign"] or, with rsa2, ["sign","sign_type"]`},
			{"key_suffix", "md5 and hmac-sha256: the text between the fields and the appended key; " +
				`"" with md5: nothing between them, with hmac-sha256: the key is not appended`, ""},
			{"case", "md5 and hmac-sha256: upper or lower case of the hex digits", ""},
			{"skip_empty", "whether empty fields are not signed", ""},
			{"put", `where the signature goes: {"in": "body", "query" or "header", "name": …}`, ""},
			{"sign_type", "the value of a field sign_type that is added next to a signature in body or " +
				`query; "": not added`, ""},
			{"nonce", "the name of a field to add and sign, with 32 random letters and digits that differ " +
				`for each attempt, such as WeChat Pay v2's nonce_str; "": not added`, ""},
			{"time", "the name of a field to add and sign, with the time of the attempt, such as Alipay's " +
				`timestamp; "": not added`, ""},
			{"time_format", "the format of that time: unix (seconds), unix_ms, or datetime " +
				"(2006-01-02 15:04:05 in UTC+8)", ""},
		},
	},
	{
		WeChatV3,
		"WeChat Pay v3: RSA-SHA256 over timestamp, nonce and body in Wechatpay-Signature, with the " +
			"secret's label in Wechatpay-Serial. With mchid: as a merchant's request to WeChat Pay. " +
			"Only the newest secret signs.",
		newWeChat,
		[]Option{
			{"mchid", "the merchant number, 1 to 32 letters and digits: Authorization has RSA-SHA256 over " +
				`method, path with query, timestamp, nonce and body; "": Wechatpay-* headers, as in ` +
				"notifications", ""},
		},
	},
	{
		Basic, "Sends a user and a password as Authorization: Basic. Only the newest secret is sent.",
		sendsSecret("Basic", UseBasic), nil,
	},
	{
		Bearer, "Sends a token as Authorization: Bearer. Only the newest secret is sent.",
		sendsSecret("Bearer", UseText), nil,
	},
	{
		None, "No signature: the sender has signed the body, or the receiver needs no signature.",
		simply("", signNothing, verifyNothing), nil,
	},
}

// Infos returns the descriptions of all signers, the default one first.
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

// Names returns the names of the signers, the default one first. Each accept calls it, so it is cheap.
func Names() []string {
	names := make([]string, len(kinds))
	for i := range kinds {
		names[i] = kinds[i].name
	}
	return names
}

// options is a signer with its options. Each implementation is the struct of its JSON form.
type options interface {
	// defaults returns the signer with all options at their defaults.
	defaults() options
	// use is the use of the signer's secrets. Empty means that it has none.
	use() string
	// sign signs a request. The caller has checked that no secret is empty. An error is a *KeyError, or
	// another one if the request is invalid.
	sign(c *Cache, r *Request) (Signature, error)
	verify(in *receivedRequest) error
}

// A signer is the compiled form of a signer: its name and its options. It is read-only.
type signer struct {
	name string
	options
}

// newSigner returns the signer of a name with all options at their defaults. It is nil if there is none.
func newSigner(name string) *signer {
	for i := range kinds {
		if kinds[i].name == name {
			return &signer{name, kinds[i].new()}
		}
	}
	return nil
}

// byName are the signers with all options at their defaults, and the signers of alert sinks.
var byName = func() map[string]*signer {
	all := make(map[string]*signer, len(kinds))
	for i := range kinds {
		all[kinds[i].name] = newSigner(kinds[i].name)
	}
	for i := range sealedURLs {
		all[sealedURLs[i].name] = &signer{sealedURLs[i].name, sealedURLs[i].new()}
	}
	return all
}()

// simple is a signer without options.
type simple struct {
	Type string `json:"type" most:"64"`

	uses     string
	signs    func(r *Request) (Signature, error)
	verifies func(in *receivedRequest) error
}

func simply(use string, signs func(r *Request) (Signature, error),
	verifies func(in *receivedRequest) error) func() options {
	return func() options { return &simple{uses: use, signs: signs, verifies: verifies} }
}

func (s *simple) defaults() options { return s }

// Known returns what package parse reports for an unknown member.
func (*simple) Known() string { return "this signer has no options" }

func (s *simple) use() string { return s.uses }

func (s *simple) sign(_ *Cache, r *Request) (Signature, error) { return s.signs(r) }

func (s *simple) verify(in *receivedRequest) error { return s.verifies(in) }

func signNothing(*Request) (Signature, error) { return Signature{}, nil }

func verifyNothing(*receivedRequest) error { return nil }

// ReadSetting parses a signer: its name, or an object with its type and its options.
func (s *signer) ReadSetting(v parse.Setting) {
	kind, isObject := v, v.Raw[0] == '{'
	switch {
	case isObject:
		var ok bool
		kind, ok = v.Member("type")
		if !ok {
			v.In("type").Fail("is required: one of %s", strings.Join(Names(), ", "))
			return
		}
	case !v.IsText():
		v.Fail(`must be a name or an object with a "type"`)
		return
	}
	known := newSigner(kind.Plain())
	if known == nil || !kind.IsText() {
		kind.Fail("must be one of %s", strings.Join(Names(), ", "))
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

// text returns the canonical text of the signer: its name, or an object with the options that differ from
// their defaults.
func (s *signer) text() string {
	text, changed := parse.EncodeChanged(s.options, s.defaults())
	if !changed {
		return s.name
	}
	return string(text)
}

// Parse parses a signer: a JSON string with its name, or an object {"type": …} with options as Infos lists
// them. It returns the canonical text, which Cache.Sign and Verify take: the bare name if all options have
// their defaults, else compact JSON with its members in a fixed order. Errors name fields relative to the
// signer, such as "put.name"; the field "" is the signer itself.
func Parse(raw []byte) (string, []store.FieldError) {
	s := new(signer)
	if wrong := parse.Decode(raw, s, nil); len(wrong) > 0 {
		return "", wrong
	}
	return s.text(), nil
}

// readSigner compiles a signer from its canonical text. Empty means the default signer.
func readSigner(text string) (*signer, error) {
	if s := byName[cmp.Or(text, Standard)]; s != nil {
		return s, nil
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = parse.Quote(text)
	}
	s := new(signer)
	if wrong := parse.Decode(raw, s, nil); len(wrong) > 0 {
		return nil, fmt.Errorf("invalid signer: %s", strings.TrimSpace(wrong[0].Field+" "+wrong[0].Message))
	}
	return s, nil
}

// SignsBody reports whether a signer puts its signature into the body. Such a signer cannot sign a request
// without a body. text is the signer as Parse returns it; an invalid one gives false.
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

// A Kind is a signer's name and the use of its secrets. It decides to which hosts the secrets may be sent:
// signers of the same kind use a secret in the same way.
type Kind struct {
	Name string
	// Use is one of Uses. Empty means that the signer has no secret.
	Use string
}

// KindOf returns the kind of a signer, given as Parse returns it. Empty means the default signer. It fails if
// the signer is invalid.
func KindOf(text string) (Kind, error) {
	s, err := readSigner(text)
	if err != nil {
		return Kind{}, err
	}
	return Kind{s.name, s.use()}, nil
}

// UseOf returns the use of a signer's secrets, see KindOf.
func UseOf(signer string) (use string, err error) {
	k, err := KindOf(signer)
	return k.Use, err
}

// SendsSecret reports whether the signer sends the secret itself to the receiver.
func (k Kind) SendsSecret() bool { return k.Name == Basic || k.Name == Bearer || k.IsSealedURL() }

// IsBound reports whether the signer's secrets may be used only for the hosts that they were given for. That
// is so if it sends its secret or has a private key.
func (k Kind) IsBound() bool { return k.SendsSecret() || IsPrivate(k.Use) }

// IsPrivate reports whether secrets of a use are private keys. No receiver has a private key, so one key may
// sign for several receivers.
func IsPrivate(use string) bool { return use == UseRSA || use == UseEd25519 }

// maxText is the maximum length of an option's text in characters.
const maxText = 64

// A headerName is the name of a header that a signer may set. A headerText is part of a header's value. A
// fieldText is the name or the value of a field that is inserted into a form, JSON or XML without escapes.
type (
	headerName string
	headerText string
	fieldText  string
)

// ReadSetting parses a header name.
func (h *headerName) ReadSetting(s parse.Setting) {
	name, ok := s.Text(maxText)
	*h = headerName(name)
	if why := h.problem(); ok && why != "" {
		s.Fail("cannot be set: %s", why)
	}
}

// problem returns why a signer may not set the header, or "".
func (h headerName) problem() string {
	if strings.EqualFold(string(h), "Content-Type") {
		return "Content-Type is set from the body"
	}
	return CheckHeader(store.Header{Name: string(h)})
}

// ReadSetting parses a text of printable ASCII.
func (h *headerText) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxText)
	*h = headerText(text)
	if ok && !parse.IsPrintable(text) {
		s.Fail("must be printable ASCII")
	}
}

// ReadSetting parses a name or a value.
func (f *fieldText) ReadSetting(s parse.Setting) {
	text, ok := s.Text(maxText)
	*f = fieldText(text)
	if ok && (strings.IndexByte("0123456789-", text[0]) >= 0 || !isFieldText(text)) {
		s.Fail("must be letters, digits, _ and -, and begin with a letter or _")
	}
}

func isFieldText(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

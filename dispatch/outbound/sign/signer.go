// Package sign signs requests and verifies them: the signers and their options, secrets and keys as they are written, and
// the headers that a caller or a signer may set.
//
//   - Nothing is signed with a key that is missing or unfit, and no error shows a key.
//   - What a signer adds replaces nothing of the caller's; every other byte of body and query stays as it was.
//   - Verification compares in constant time.
//
// The package sends nothing and looks up no secrets: it uses those that it is given.
package sign

import (
	"fmt"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// The names of the signers.
const (
	// SignerStandard signs by Standard Webhooks v1: HMAC-SHA256 over id, timestamp and body.
	Standard = "standard-v1"
	// SignerStandardAsymmetric signs by Standard Webhooks v1a: Ed25519 over the same. Its receivers can verify and cannot forge.
	StandardAsymmetric = "standard-v1a"
	// SignerHMACBody puts HMAC-SHA256 over the body alone into a header, as GitHub and Shopify do.
	HMACBody = "hmac-sha256-body"
	// SignerTimestamped puts "t=TIMESTAMP,v1=HMAC" over timestamp and body into a header, as Stripe does.
	Timestamped = "t-v1"
	// SignerSortedKV signs the body's fields, sorted, as WeChat Pay v2, Alipay and most payment aggregators in China do.
	SortedKV = "sorted-kv"
	// SignerWeChatV3 signs by WeChat Pay v3: RSA-SHA256 over timestamp, nonce and body, in a merchant's requests over method and path too.
	WeChatV3 = "wechat-v3-rsa"
	// SignerBasic sends a user and a password (RFC 7617), SignerBearer a token (RFC 6750): no signatures, and seen by who reads along.
	Basic  = "basic"
	Bearer = "bearer"
	// SignerNone sends unsigned, for bodies that the caller signed.
	None = "none"
)

// A Secret is what signs. Request.Secrets has the present one first, during a rotation followed by the one before it.
type Secret struct {
	// ID is for people: it is kept with the attempt. Empty: the secret has none.
	ID string
	// Label is what receivers know it by, such as a certificate's serial number: wechat-v3-rsa sends it. Empty: its ID.
	Label string
	// Hosts are where it may be used beside its endpoint's own host, as store.NamesHost reads them. The
	// client does not look at them: what it is given, it uses.
	Hosts []string
	// Key is what ParseSecretFor or NewSecret returned for the signer's use.
	Key []byte
}

// A SignerInfo tells people of a signer.
type Info struct {
	Name        string
	Description string
	// Use says what kind of secret it takes, for ParseSecretFor; empty: none. sorted-kv with alg rsa2 takes UseRSA instead.
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

// SignerInfos returns every signer, the default one first.
func Infos() []Info {
	header := func(name string) Option {
		return Option{"header", "the header that the signature is put into", store.JSONText(parse.Quote(nil, name))}
	}
	key := Option{"key", `"bytes": the secret's bytes are the key; "written": the whole text "whsec_…" is, as libraries take it that do not decode secrets`, `"bytes"`}
	return []Info{
		{Standard, "Standard Webhooks v1: webhook-signature has HMAC-SHA256 over id, timestamp and body; during a rotation by both secrets.", UseHMAC, nil},
		{StandardAsymmetric, "Standard Webhooks v1a: webhook-signature has Ed25519 over id, timestamp and body; during a rotation by both keys.", UseEd25519, nil},
		{HMACBody, "HMAC-SHA256 over the body in a header of its own, such as GitHub's X-Hub-Signature-256; during a rotation the former secret's is in a second header.", UseHMAC, []Option{
			header(defaultBodyHeader),
			{"prefix", "what stands before the signature", `"sha256="`},
			{"encoding", "hex or base64", `"hex"`},
			{"rotation_header", `the header of the former secret's signature during a rotation; "": it is not sent`, `"` + defaultBodyHeader + previousSuffix + `"`},
			key,
		}},
		{Timestamped, "t=TIMESTAMP,v1=HMAC-SHA256 over timestamp and body in one header, such as Stripe's Stripe-Signature; during a rotation with a v1 for both secrets.", UseHMAC, []Option{
			header(defaultTimestampedHeader), key,
		}},
		{SortedKV, "A signature over the body's fields (form, flat JSON or flat XML; without a body, the query's), sorted and joined, such as WeChat Pay v2's and Alipay's; always by the newest secret.", UseText, []Option{
			{"alg", "md5, hmac-sha256 or rsa2 (RSA-SHA256)", `"hmac-sha256"`},
			{"exclude", "the fields that are not signed", `["sign"] or, with rsa2, ["sign","sign_type"]`},
			{"key_suffix", `md5, hmac-sha256: what joins the fields to the key behind them; "" with md5: nothing does, with hmac-sha256: the key is not put there`, `"&key="`},
			{"case", "md5, hmac-sha256: upper or lower, the case of the hex digits", `"upper"`},
			{"skip_empty", "whether empty fields are left out of what is signed", `true`},
			{"put", `where the signature goes: {"in": "body", "query" or "header", "name": …}`, `{"in":"body","name":"sign"}`},
			{"sign_type", `the value of a field sign_type that is put beside a signature in body or query; "": there is none`, `""`},
			{"nonce", `the name of a field that is put among those that are signed, with 32 random letters and digits, others at each attempt, such as WeChat Pay v2's nonce_str; "": there is none`, `""`},
			{"time", `the name of a field that is put among those that are signed, with the time of the attempt, such as Alipay's timestamp; "": there is none`, `""`},
			{"time_format", "how that time is written: unix (seconds), unix_ms, or datetime (2006-01-02 15:04:05 in UTC+8)", `"unix"`},
		}},
		{WeChatV3, "WeChat Pay v3: Wechatpay-Signature has RSA-SHA256 over timestamp, nonce and body, Wechatpay-Serial the secret's label; always by the newest secret. With mchid as merchants sign requests to it.", UseRSA, []Option{
			{"mchid", `the merchant's number, 1 to 32 letters and digits: Authorization has RSA-SHA256 over method, path with query, timestamp, nonce and body; "": Wechatpay-* headers, as in notifications`, `""`},
		}},
		{Basic, "Authorization: Basic, user and password; always the newest.", UseBasic, nil},
		{Bearer, "Authorization: Bearer, a token; always the newest.", UseText, nil},
		{None, "Nothing is signed: the caller did, or nobody needs to.", "", nil},
	}
}

// Signers returns the names of the signers, the default one first. It is cheap: every accept asks for them.
func Names() []string {
	return []string{
		Standard, StandardAsymmetric, HMACBody, Timestamped, SortedKV, WeChatV3, Basic, Bearer,
		None,
	}
}

// A signer is compiled. It is read-only.
type signer struct {
	name string
	// header is where hmac-sha256-body and t-v1 put the signature, rotation where the former of them puts that of the secret before; empty:
	// nowhere. prefix stands before it; base64: it is not in hex; written: the key is the secret's written form.
	header, rotation, prefix string
	base64, written          bool
	// mchid is the merchant that wechat-v3-rsa signs requests of; empty: it signs as the platform does.
	mchid string
	// kv are the options of sorted-kv.
	kv kvOptions
}

func (s *signer) use() string {
	switch s.name {
	case Standard, HMACBody, Timestamped:
		return UseHMAC
	case StandardAsymmetric:
		return UseEd25519
	case SortedKV:
		if s.kv.alg != algRSA2 {
			return UseText
		}
		return UseRSA
	case WeChatV3:
		return UseRSA
	case Basic:
		return UseBasic
	case Bearer:
		return UseText
	}
	return ""
}

// readSigner compiles a signer from its text.
func readSigner(text string) (*signer, error) {
	if text == "" {
		text = Standard
	}
	raw := []byte(text)
	if !strings.HasPrefix(text, "{") {
		raw = parse.Quote(nil, text)
	}
	s, wrong := compileSigner(raw)
	if len(wrong) > 0 {
		return nil, fmt.Errorf("the signer is unknown or cannot be read: %s", strings.TrimSpace(wrong[0].Field+" "+wrong[0].Message))
	}
	return s, nil
}

// SignsBody says whether a signer puts its signature into the body, so that a request without one cannot be signed. The signer is as
// ParseSigner returns it.
func SignsBody(signer string) bool {
	if !strings.Contains(signer, SortedKV) {
		return false
	}
	s, err := readSigner(signer)
	return err == nil && s.name == SortedKV && s.kv.in == putBody
}

"""What people type: sign in, register, how many to buy."""

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, BaseUserCreationForm
from django.contrib.auth.models import User


class LoginForm(AuthenticationForm):
    """One answer for a wrong name, a wrong password and a closed account."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}


class RegisterForm(BaseUserCreationForm):  # type: ignore[type-arg]
    class Meta(BaseUserCreationForm.Meta):
        model = User
        fields = ("username",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.label_suffix = ""
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}


class BuyForm(forms.Form):
    quantity = forms.IntegerField(min_value=1, max_value=32767, required=False)

    def units(self) -> int | None:
        """The units asked for, 1 if none were named; None if it can't be a number of units."""
        return (self.cleaned_data["quantity"] or 1) if self.is_valid() else None


class OrderFilter(forms.Form):
    """What the list of orders is narrowed to; a status that there isn't counts as none."""

    STATUSES = ("unpaid", "paid", "canceled", "expired", "refunded")

    status = forms.CharField(required=False, max_length=20)
    q = forms.CharField(required=False, max_length=100)

    def values(self) -> dict[str, str]:
        """`status` and `q`, each empty if it says nothing."""
        given = self.cleaned_data if self.is_valid() else {}
        status = given.get("status", "")
        return {"status": status if status in self.STATUSES else "", "q": given.get("q", "")}

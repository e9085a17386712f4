pub struct FnModel;
